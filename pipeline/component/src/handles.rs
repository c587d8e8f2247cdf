//! What components offer to others.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Handles that a component offers, by type.
#[derive(Clone, Default)]
pub struct Handles(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl Handles {
    pub fn add<T: Any + Send + Sync>(&mut self, handle: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(handle));
    }

    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        Arc::downcast(self.0.get(&TypeId::of::<T>())?.clone()).ok()
    }
}

impl fmt::Debug for Handles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} handles", self.0.len())
    }
}
