//! The memory of a sampled process.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const PAGE: u64 = 4096;

/// Memory that may change or disappear while it is read.
pub trait Memory {
    /// Fills the buffer.
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), MemoryError>;

    fn bytes(&self, address: u64, size: usize) -> Result<Vec<u8>, MemoryError> {
        let mut bytes = vec![0; size];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }

    /// For an object that may end before `size`, with its page: what cannot be read behind that page is zero.
    fn padded(&self, address: u64, size: usize) -> Result<Vec<u8>, MemoryError> {
        let mut bytes = vec![0; size];
        let Err(error) = self.read(address, &mut bytes) else {
            return Ok(bytes);
        };
        bytes.fill(0);
        match bytes.get_mut(..(PAGE - address % PAGE) as usize) {
            Some(first) if first.len() < size => self.read(address, first)?,
            _ => return Err(error),
        }
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
    #[source]
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

    /// One page, at the second page's address.
    struct OnePage;

    impl Memory for OnePage {
        fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), MemoryError> {
            let end = address + buffer.len() as u64;
            if address < PAGE || end > 2 * PAGE {
                let error = io::ErrorKind::Other.into();
                return Err(MemoryError { address, error });
            }
            buffer.fill(7);
            Ok(())
        }
    }

    #[test]
    fn an_object_may_end_with_its_page() {
        let read = |address, size| OnePage.padded(address, size).ok();
        assert_eq!(read(PAGE, 4), Some(vec![7; 4]));
        assert_eq!(read(2 * PAGE - 4, 4), Some(vec![7; 4]));
        assert_eq!(read(2 * PAGE - 3, 5), Some(vec![7, 7, 7, 0, 0]));
        assert_eq!(read(2 * PAGE, 4), None);
        assert_eq!(read(PAGE - 2, 4), None);
    }

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
