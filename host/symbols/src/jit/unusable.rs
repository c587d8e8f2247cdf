//! Why the file of a process cannot be used.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    #[error("read failed: {0}")]
    Io(#[from] io::Error),
    #[error("owned by user {0}, expected the process's user or root")]
    Owner(u32),
    #[error("not a regular file")]
    NoFile,
    #[error("bad magic number")]
    Format,
}
