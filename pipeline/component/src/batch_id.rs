//! The identity of a batch.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::time::SystemTime;

use profcol_profile::{Pieces, Profiles};
use twox_hash::XxHash3_128;

/// Identifies a batch across resends. A batch that is derived from others has an id that is derived from theirs, so
/// that it is the same if the same batch is derived again.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BatchId(u128);

impl BatchId {
    /// The header of a request with the id of its batch.
    pub const HEADER: &'static str = "profcol-batch-id";

    /// Different from all others, also from those of other processes.
    pub fn unique() -> Self {
        // Keys from the system's random numbers. The time tells copies of a virtual machine apart.
        let half = || u128::from(RandomState::new().hash_one(SystemTime::now()));
        Self(half() << 64 | half())
    }

    /// Recognizes a batch that a client resends byte for byte.
    pub fn of_content(content: &[u8]) -> Self {
        Self(XxHash3_128::oneshot(content))
    }

    /// The ID of a batch that was merged from these, in this order.
    pub fn of_merged(members: impl IntoIterator<Item = BatchId>) -> Self {
        let members = members.into_iter().flat_map(BatchId::to_bytes);
        Self::derived(b"merged", members)
    }

    /// The ID of the same batch on its way through one of several components that may lead to the same destination.
    pub fn within(self, component: &str) -> Self {
        Self::derived(
            b"within",
            self.to_bytes().into_iter().chain(component.bytes()),
        )
    }

    /// The ID of the part of the batch with the resources at these positions.
    pub fn of_resources(self, positions: &[usize]) -> Self {
        self.of_part(b"resources", positions)
    }

    /// The IDs of the pieces of the batch, then of the samples that are too large for one. A piece is identified by which samples
    /// it has, not only by its position: another limit makes other pieces.
    pub fn of_pieces(self, split: &Pieces<Profiles>) -> Vec<Self> {
        let left_out = split.oversize.as_ref().map_or(0, Profiles::sample_count);
        let mut until = 0;
        let pieces = split.pieces.iter().chain(&split.oversize).enumerate();
        let ids = pieces.map(|(position, piece)| {
            let from = until;
            until += piece.sample_count();
            self.of_part(b"piece", &[position, from, until, left_out])
        });
        ids.collect()
    }

    fn of_part(self, kind: &[u8], numbers: &[usize]) -> Self {
        let numbers = numbers.iter().flat_map(|it| (*it as u64).to_le_bytes());
        Self::derived(kind, self.to_bytes().into_iter().chain(numbers))
    }

    fn derived(how: &[u8], from: impl Iterator<Item = u8>) -> Self {
        let bytes: Vec<u8> = how.iter().copied().chain(from).collect();
        Self::of_content(&bytes)
    }

    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// `None` unless the text has 32 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        // Parsing a number also accepts a sign.
        let is_id = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| is_id);
        number.map(Self)
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use profcol_profile::Bound;

    use super::*;
    use crate::testkit::profiles;

    #[test]
    fn ids_are_written_as_32_digits_and_read_again() {
        let id = BatchId::from_bytes(*b"\0\x01456789abcdef\xff\xfe");
        let text = "0001343536373839616263646566fffe";
        assert_eq!(id.to_string(), text);
        for text in [text, &text.to_uppercase()] {
            assert_eq!(BatchId::parse(text), Some(id));
        }
        let signed = format!("+{}", &text[1..]);
        for invalid in ["", &text[1..], &signed, &format!("{text}0")] {
            assert_eq!(BatchId::parse(invalid), None, "{invalid}");
        }
        assert_eq!(BatchId::from_bytes(id.to_bytes()), id);
        assert_ne!(BatchId::unique(), BatchId::unique());
    }

    #[test]
    fn derived_ids_are_equal_only_for_equal_batches() {
        let whole = BatchId::unique();
        let split = |samples| whole.of_pieces(&profiles(6).split(Bound::Samples(samples)));
        let (twos, threes) = (split(2), split(3));
        assert_eq!(twos, split(2));
        let [a, b] = [(); 2].map(|()| BatchId::unique());
        let others = [
            whole,
            whole.within("a"),
            whole.of_resources(&[0]),
            whole.of_resources(&[1]),
            BatchId::of_merged([a, b]),
            BatchId::of_merged([b, a]),
        ];
        let all: Vec<_> = others.iter().chain(&twos).chain(&threes).collect();
        for (at, id) in all.iter().enumerate() {
            assert!(!all[..at].contains(id), "{at}");
        }
    }
}
