//! Stack ids.
//!
//! A stack's id covers everything that distinguishes its frames. Parca Agent leaves out the function names, and
//! therefore mixes up stacks of interpreted code.
//! An id has 16 bytes: a ten-byte hash and six zero bytes, because hashes do not compress, and a dialogue sends each of
//! them three times. Two of a hundred million stacks share the same ten bytes with a probability of less than one in a
//! hundred million.

use profcol_profile::{LocationIdx, StackIdx};
use twox_hash::XxHash3_128;

use crate::frames::Frames;

pub type StackId = [u8; 16];

/// The stack ids of a batch, each computed once.
pub struct StackIds<'a> {
    frames: &'a Frames<'a>,
    locations: Vec<Option<u128>>,
    stacks: Vec<Option<StackId>>,
}

impl<'a> StackIds<'a> {
    pub fn new(frames: &'a Frames<'a>) -> Self {
        let dictionary = &frames.model().dictionary;
        Self {
            frames,
            locations: vec![None; dictionary.locations.rows().len()],
            stacks: vec![None; dictionary.stacks.len()],
        }
    }

    pub fn id(&mut self, stack: StackIdx) -> StackId {
        if let Some(Some(id)) = self.stacks.get(stack.row()) {
            return *id;
        }
        let locations = self.frames.model().dictionary.stacks.get(stack);
        let mut bytes = Vec::with_capacity(locations.len() * size_of::<u128>());
        for &location in locations {
            bytes.extend_from_slice(&self.location(location).to_be_bytes());
        }
        let id = shortened(XxHash3_128::oneshot(&bytes));
        if let Some(slot) = self.stacks.get_mut(stack.row()) {
            *slot = Some(id);
        }
        id
    }

    fn location(&mut self, location: LocationIdx) -> u128 {
        if let Some(Some(hash)) = self.locations.get(location.row()) {
            return *hash;
        }
        let hash = self.hash(location);
        if let Some(slot) = self.locations.get_mut(location.row()) {
            *slot = Some(hash);
        }
        hash
    }

    fn hash(&self, location: LocationIdx) -> u128 {
        let frame = self.frames.frame(location);
        let mut bytes = Vec::with_capacity(256);
        let memory = &frame.memory;
        for number in [
            frame.address,
            memory.memory_start,
            memory.memory_limit,
            memory.file_offset,
        ] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        for text in [frame.kind, frame.file, frame.build_id] {
            push_text(&mut bytes, text);
        }
        for line in self.frames.lines(&frame) {
            for text in [line.name, line.system_name, line.file] {
                push_text(&mut bytes, text);
            }
            for number in [line.start_line, line.line, line.column] {
                bytes.extend_from_slice(&number.to_be_bytes());
            }
        }
        XxHash3_128::oneshot(&bytes)
    }
}

fn shortened(hash: u128) -> StackId {
    const ZERO_BYTES: u32 = 6;
    let zero = ZERO_BYTES * u8::BITS;
    (hash >> zero << zero).to_be_bytes()
}

/// Includes the length, so that different lists of strings yield different bytes.
fn push_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&(text.len() as u64).to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
}
