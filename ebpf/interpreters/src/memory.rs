//! The memory of a sampled process.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Memory that may change or disappear while it is read.
pub trait Memory {
    /// Fills the buffer.
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), MemoryError>;

    fn bytes(&self, address: u64, size: usize) -> Result<Vec<u8>, MemoryError> {
        let mut bytes = vec![0; size];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }

    fn word(&self, address: u64) -> Result<u64, MemoryError> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("failed to read process memory at {address:#x}: {error}")]
pub struct MemoryError {
    pub address: u64,
    pub error: io::Error,
}

/// The memory of the process image that had the PID when this was opened: it is unaffected by an exec or by
/// a new process with the same PID.
#[derive(Debug)]
pub struct ProcessMemory(File);

impl ProcessMemory {
    pub fn open(pid: u32) -> io::Result<Self> {
        File::open(format!("/proc/{pid}/mem")).map(Self)
    }

    /// Whether the process image is gone: its memory ends at once then, while address 0 of a living one is an error.
    pub fn is_gone(&self) -> bool {
        matches!(self.0.read_at(&mut [0], 0), Ok(0))
    }
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), MemoryError> {
        let read = self.0.read_exact_at(buffer, address);
        read.map_err(|error| MemoryError { address, error })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic fails the test")]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_memory_of_an_exited_process_is_gone() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let memory = ProcessMemory::open(child.id()).unwrap();
        assert!(!memory.is_gone());
        // It ends with its input.
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(memory.is_gone());
    }
}
