//! The fuzzer's input as a source of choices; zeros after its end.

pub struct Bytes<'d>(&'d [u8]);

impl<'d> Bytes<'d> {
    pub fn new(data: &'d [u8]) -> Self {
        Self(data)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        self.number::<1>() as u8
    }

    pub fn short(&mut self) -> u64 {
        self.number::<2>()
    }

    pub fn word(&mut self) -> u64 {
        self.number::<8>()
    }

    /// True with a chance of one in `of`.
    pub fn rarely(&mut self, of: u8) -> bool {
        self.byte() % of == of - 1
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        usize::from(self.byte()) % limit.max(1)
    }

    pub fn take(&mut self, length: usize) -> &'d [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn number<const BYTES: usize>(&mut self) -> u64 {
        let mut number = [0; 8];
        let taken = self.take(BYTES);
        number[..taken.len()].copy_from_slice(taken);
        u64::from_le_bytes(number)
    }
}
