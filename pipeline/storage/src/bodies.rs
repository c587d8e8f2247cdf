//! Bodies that are stored elsewhere: records refer to those that several queues share.

use std::io;

use crate::format::Reference;

/// What a reference leads to.
#[derive(Debug, PartialEq, Eq)]
pub enum Body {
    /// Verified, if it was read.
    Intact(Vec<u8>),
    /// Its segment was removed, after all records that refer to it were settled, or by someone else, or a power loss came
    /// before it was durable.
    Missing,
    Damaged,
}

/// Where bodies are looked up.
pub trait Bodies: Sync {
    /// Looks for a body of this length without reading it.
    fn find(&self, reference: &Reference, len: u32) -> io::Result<Body>;
    /// Reads and verifies a body of this length.
    fn read(&self, reference: &Reference, len: u32) -> io::Result<Body>;
}

/// For logs that have no shared bodies.
pub struct NoBodies;

impl Bodies for NoBodies {
    fn find(&self, _: &Reference, _: u32) -> io::Result<Body> {
        Ok(Body::Missing)
    }

    fn read(&self, _: &Reference, _: u32) -> io::Result<Body> {
        Ok(Body::Missing)
    }
}
