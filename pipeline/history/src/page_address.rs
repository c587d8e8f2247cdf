//! Where the page of a history is served.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

/// Set once the page is served; a handle for the program that runs the pipelines.
#[derive(Clone, Debug, Default)]
pub struct PageAddress(Arc<OnceLock<SocketAddr>>);

impl PageAddress {
    pub fn get(&self) -> Option<SocketAddr> {
        self.0.get().copied()
    }

    /// The first address stays.
    pub fn set(&self, address: SocketAddr) {
        self.0.get_or_init(|| address);
    }
}
