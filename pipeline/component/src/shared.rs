//! State shared by the components of a service.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

/// One handle per type, cheap to clone. The engine adds its own, such as [`CurrentService`](crate::CurrentService). Other
/// types are created with their default on first use, so that a receiver and an exporter can share a type unknown to
/// the engine.
#[derive(Clone, Default)]
pub struct Shared(Arc<Mutex<HashMap<TypeId, Box<dyn Any + Send>>>>);

impl Shared {
    pub fn put<T: Any + Send>(&self, handle: T) {
        self.0.lock().insert(TypeId::of::<T>(), Box::new(handle));
    }

    pub fn get<T: Any + Clone + Default + Send>(&self) -> T {
        let mut handles = self.0.lock();
        let handle = handles
            .entry(TypeId::of::<T>())
            .or_insert_with(|| Box::new(T::default()));
        // Cannot fail: the key is the handle's type.
        handle.downcast_ref::<T>().cloned().unwrap_or_default()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} shared handles", self.0.lock().len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn returns_the_same_handle_per_type() {
        let shared = Shared::default();
        let first: Arc<AtomicU32> = shared.clone().get();
        first.store(7, Ordering::Relaxed);
        let second: Arc<AtomicU32> = shared.get();
        assert_eq!(second.load(Ordering::Relaxed), 7);
        assert_eq!(shared.get::<u64>(), 0);
        shared.put(9_u64);
        assert_eq!(shared.clone().get::<u64>(), 9);
    }
}
