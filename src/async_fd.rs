//! File descriptors whose events tokio waits for.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::unix::AsyncFd;

pub fn async_fd(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    #[expect(
        deprecated,
        reason = "its replacement is unsafe, and an OwnedFd never changes its descriptor"
    )]
    AsyncFd::new(descriptor)
}
