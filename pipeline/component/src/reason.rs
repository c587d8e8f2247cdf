//! Why something failed, as components tell the engine and users.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// The text that users read, and the error it comes from, if any. Equal if the texts are.
#[derive(Clone)]
pub struct Reason(Arc<dyn Error + Send + Sync>);

impl Reason {
    pub fn new(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(Arc::from(reason.into()))
    }

    /// The error, if it is an `E`.
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        self.0.downcast_ref()
    }
}

impl<R: Into<Box<dyn Error + Send + Sync>>> From<R> for Reason {
    fn from(reason: R) -> Self {
        Self::new(reason)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl PartialEq for Reason {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.to_string() == other.to_string()
    }
}

impl Eq for Reason {}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_reason_keeps_its_error() {
        let full = Reason::new(io::Error::from(io::ErrorKind::StorageFull));
        let kind = full.downcast_ref().map(io::Error::kind);
        assert_eq!(kind, Some(io::ErrorKind::StorageFull));
        assert_eq!(full, Reason::new(full.to_string()));
        assert_ne!(full, Reason::new("queue full"));
        assert!(
            Reason::new("queue full")
                .downcast_ref::<io::Error>()
                .is_none()
        );
    }
}
