//! Listening sockets that outlive their server while a reload replaces it.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

/// Hands the sockets of servers that stop to servers that start on the same addresses. Meanwhile connections wait in the
/// backlog; without it they would be refused.
#[derive(Clone, Debug, Default)]
pub struct ListeningSockets(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    /// Whether servers that stop leave their sockets here.
    is_open: bool,
    sockets: Vec<(ListenAddr, OwnedFd)>,
}

/// Where a socket listens, as configured: a family of its own is part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ListenAddr {
    Tcp { address: SocketAddr, is_dual: bool },
    Unix(PathBuf),
}

/// Until this is dropped, servers that stop leave their sockets to those that start; then the rest is closed.
#[derive(Debug)]
pub struct KeepSockets(ListeningSockets);

impl ListeningSockets {
    #[must_use]
    pub fn keep(&self) -> KeepSockets {
        self.0.lock().is_open = true;
        KeepSockets(self.clone())
    }

    /// Returns whether the socket is kept.
    pub(super) fn leave(
        &self,
        address: &ListenAddr,
        socket: impl FnOnce() -> Option<OwnedFd>,
    ) -> bool {
        let mut kept = self.0.lock();
        // The kernel would choose another port for the next server.
        let is_chosen = matches!(address, ListenAddr::Tcp { address, .. } if address.port() == 0);
        if !kept.is_open || is_chosen {
            return false;
        }
        let socket = socket();
        let is_kept = socket.is_some();
        kept.sockets
            .extend(socket.map(|socket| (address.clone(), socket)));
        is_kept
    }

    pub(super) fn take(&self, address: &ListenAddr) -> Option<OwnedFd> {
        let mut kept = self.0.lock();
        let position = kept
            .sockets
            .iter()
            .position(|(other, _)| other == address)?;
        Some(kept.sockets.swap_remove(position).1)
    }
}

impl Drop for KeepSockets {
    fn drop(&mut self) {
        let left = std::mem::take(&mut *self.0.0.lock());
        for (address, _) in left.sockets {
            if let ListenAddr::Unix(path) = address {
                // It may be gone or replaced by another process; both are fine.
                let _ = std::fs::remove_file(path);
            }
        }
    }
}
