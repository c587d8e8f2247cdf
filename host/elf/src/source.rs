//! The source of a file's bytes.
//!
//! Files are read, not mapped: truncating a mapped file kills the reader, and mapped pages count as its memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

pub trait Source {
    fn length(&self) -> io::Result<u64>;

    /// Fills the buffer or fails.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}

impl Source for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }
}

impl Source for [u8] {
    fn length(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).ok();
        let bytes = start.and_then(|start| self.get(start..start.checked_add(buffer.len())?));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl<S: Source + ?Sized> Source for &S {
    fn length(&self) -> io::Result<u64> {
        (**self).length()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        (**self).read_at(buffer, offset)
    }
}

impl Source for Vec<u8> {
    fn length(&self) -> io::Result<u64> {
        self.as_slice().length()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.as_slice().read_at(buffer, offset)
    }
}

impl<S: Source + ?Sized> Source for std::sync::Arc<S> {
    fn length(&self) -> io::Result<u64> {
        (**self).length()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        (**self).read_at(buffer, offset)
    }
}

impl<S: Source + ?Sized> Source for std::rc::Rc<S> {
    fn length(&self) -> io::Result<u64> {
        (**self).length()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        (**self).read_at(buffer, offset)
    }
}
