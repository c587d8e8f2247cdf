//! Memory of published areas that is given back with its last user.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::arena::Allocation;

/// Allocations without users.
pub type Returned = Arc<Mutex<Vec<Allocation>>>;

/// An allocation for areas, freed with its last user.
#[derive(Debug)]
pub struct Lease {
    pub allocation: Allocation,
    pub returned: Returned,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut returned = self.returned.lock();
        returned.push(self.allocation);
    }
}
