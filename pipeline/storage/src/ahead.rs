//! Reads a file page by page: records with references are small, and a page has dozens of them.

use std::io;

use parking_lot::Mutex;

use crate::disk::DiskFile;

/// What the kernel reads anyway.
const PAGE: usize = 4096;

/// A file that does not change.
pub struct ReadAhead<'a> {
    file: &'a dyn DiskFile,
    size: u64,
    read: Mutex<Read>,
}

#[derive(Default)]
struct Read {
    at: u64,
    bytes: Vec<u8>,
}

impl<'a> ReadAhead<'a> {
    pub fn new(file: &'a dyn DiskFile, size: u64) -> Self {
        Self {
            file,
            size,
            read: Mutex::default(),
        }
    }
}

impl Read {
    fn get(&self, at: u64, len: usize) -> Option<&[u8]> {
        let from = usize::try_from(at.checked_sub(self.at)?).ok()?;
        self.bytes.get(from..from.checked_add(len)?)
    }
}

impl DiskFile for ReadAhead<'_> {
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let mut read = self.read.lock();
        if let Some(found) = read.get(at, into.len()) {
            into.copy_from_slice(found);
            return Ok(());
        }
        // Up to the end of the page: the next one may not be needed.
        let rest = PAGE - (at % PAGE as u64) as usize;
        let left = usize::try_from(self.size.saturating_sub(at)).unwrap_or(usize::MAX);
        let len = rest.min(left);
        if into.len() >= len {
            return self.file.read_at(at, into);
        }
        // Nothing is in it if that fails.
        read.bytes.clear();
        let mut bytes = vec![0; len];
        self.file.read_at(at, &mut bytes)?;
        *read = Read { at, bytes };
        if let Some(found) = read.get(at, into.len()) {
            into.copy_from_slice(found);
        }
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.size)
    }

    fn append(&self, parts: &[&[u8]]) -> io::Result<()> {
        self.file.append(parts)
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.file.truncate(size)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::Disk;
    use crate::simulated::{Random, SimulatedDisk};

    struct CountsReads(Arc<dyn DiskFile>, AtomicUsize);

    impl DiskFile for CountsReads {
        fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.read_at(at, into)
        }

        fn size(&self) -> io::Result<u64> {
            self.0.size()
        }

        fn append(&self, parts: &[&[u8]]) -> io::Result<()> {
            self.0.append(parts)
        }

        fn truncate(&self, size: u64) -> io::Result<()> {
            self.0.truncate(size)
        }

        fn sync(&self) -> io::Result<()> {
            self.0.sync()
        }
    }

    const SIZE: u64 = 50_000;

    fn file() -> (CountsReads, Vec<u8>) {
        let content: Vec<u8> = (0..SIZE).map(|at| ((at * 31) >> 3) as u8).collect();
        let file = SimulatedDisk::new(1).create("file").unwrap();
        file.append(&[&content]).unwrap();
        (CountsReads(file, AtomicUsize::new(0)), content)
    }

    #[test]
    fn each_read_has_the_bytes_of_the_file() {
        let (file, content) = file();
        let ahead = ReadAhead::new(&file, SIZE);
        let mut random = Random(7);
        for _ in 0..10_000 {
            let len = random.below(200) as usize;
            let at = random.below(SIZE + 100);
            let mut read = vec![0; len];
            let expected = content.get(at as usize..at as usize + len);
            match (ahead.read_at(at, &mut read), expected) {
                (Ok(()), Some(expected)) => assert_eq!(read, expected, "{len} bytes at {at}"),
                (Err(_), None) => {}
                (answer, _) => panic!("{len} bytes at {at}: {answer:?}"),
            }
        }
    }

    #[test]
    fn neighbours_are_read_at_once() {
        let (file, _) = file();
        let ahead = ReadAhead::new(&file, SIZE);
        for at in 0..SIZE / 100 {
            ahead.read_at(at * 100, &mut [0; 100]).unwrap();
        }
        let reads = file.1.load(Ordering::Relaxed);
        // Two for each page: one for what reaches into the next.
        assert!(reads <= 2 * (SIZE as usize).div_ceil(PAGE), "{reads}");
    }
}
