//! Non-contiguous bytes, sent without joining them.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

/// Cheap to clone, as `Bytes` are.
#[derive(Clone, Debug, Default)]
pub struct Chunks {
    /// None of them is empty.
    chunks: VecDeque<Bytes>,
    len: usize,
}

impl Chunks {
    /// Joins all chunks; a single one is not copied.
    pub fn joined(mut self) -> Bytes {
        if let [only] = self.chunks.make_contiguous() {
            return std::mem::take(only);
        }
        let mut joined = BytesMut::with_capacity(self.len);
        for chunk in &self.chunks {
            joined.extend_from_slice(chunk);
        }
        joined.freeze()
    }

    /// Removes the first chunk.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        let first = self.chunks.pop_front()?;
        self.len -= first.len();
        Some(first)
    }
}

impl FromIterator<Bytes> for Chunks {
    fn from_iter<I: IntoIterator<Item = Bytes>>(chunks: I) -> Self {
        let chunks = chunks.into_iter().filter(|chunk| !chunk.is_empty());
        let chunks: VecDeque<Bytes> = chunks.collect();
        Self {
            len: chunks.iter().map(Bytes::len).sum(),
            chunks,
        }
    }
}

impl From<Bytes> for Chunks {
    fn from(only: Bytes) -> Self {
        Self::from_iter([only])
    }
}

impl Buf for Chunks {
    fn remaining(&self) -> usize {
        self.len
    }

    fn chunk(&self) -> &[u8] {
        self.chunks.front().map_or(&[], |first| first)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut used = 0;
        for (slice, chunk) in slices.iter_mut().zip(&self.chunks) {
            *slice = IoSlice::new(chunk);
            used += 1;
        }
        used
    }

    fn advance(&mut self, mut count: usize) {
        while let Some(first) = self.chunks.front_mut().filter(|_| count > 0) {
            if count < first.len() {
                first.advance(count);
                self.len -= count;
                return;
            }
            count -= first.len();
            self.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks() -> Chunks {
        let parts = ["ab", "", "cde", "f"];
        parts
            .map(|part| Bytes::from_static(part.as_bytes()))
            .into_iter()
            .collect()
    }

    #[test]
    fn reads_as_if_joined() {
        assert_eq!(chunks().joined(), "abcdef");
        for step in 1..=6 {
            let (mut chunks, mut read) = (chunks(), Vec::new());
            while chunks.has_remaining() {
                let mut slices = [IoSlice::new(&[]); 2];
                let used = chunks.chunks_vectored(&mut slices);
                let shown: Vec<u8> = slices[..used].iter().flat_map(|it| it.to_vec()).collect();
                assert!(shown.starts_with(chunks.chunk()));
                let count = step.min(shown.len());
                read.extend_from_slice(&shown[..count]);
                chunks.advance(count);
                assert_eq!(read.len() + chunks.remaining(), 6);
            }
            assert_eq!(read, b"abcdef", "{step} at a time");
        }
    }

    #[test]
    fn a_single_chunk_is_not_copied() {
        let one = Bytes::from(vec![1; 100]);
        assert_eq!(Chunks::from(one.clone()).joined().as_ptr(), one.as_ptr());
        assert!(Chunks::from(Bytes::new()).joined().is_empty());
    }
}
