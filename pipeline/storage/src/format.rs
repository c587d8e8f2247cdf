//! The on-disk format; see `docs/storage-format.md`.
//!
//! All numbers are little-endian. Each checksum is XXH3 seeded with the random salt of its segment, so that neither
//! untrusted batch content nor remains of another segment can pass for a record.

use twox_hash::XxHash3_64;

/// The newest version: of segments that may have references, and of those with the bodies.
pub const VERSION: u32 = 3;

/// The version of all other segments, which an older profcol can read.
pub const WITHOUT_REFERENCES: u32 = 2;

/// The oldest version that is read. Version 1 has no ids of batches.
const OLDEST_VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"PROFCOLQ";
/// Begins each record; its kind follows.
pub const RECORD_MAGIC: [u8; 3] = [0xB7, b'p', b'c'];
const WITH_BODY: u8 = b'r';
const WITH_REFERENCE: u8 = b's';

pub const SEGMENT_HEADER: usize = 32;
pub const RECORD_HEADER: usize = 56;
pub const REFERENCE: usize = 32;
pub const SETTLED_ENTRY: usize = 12;

/// The counts of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub batches: u64,
    /// As counted by OTLP.
    pub samples: u64,
    /// As counted by their source.
    pub source_samples: u64,
    /// Encoded, uncompressed size of the batch.
    pub plain_bytes: u64,
}

/// The header of both files of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    pub version: u32,
    pub number: u64,
    pub salt: u64,
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Index of the record in its segment.
    pub index: u32,
    pub head_len: u32,
    /// Also if the body is not in the record.
    pub body_len: u32,
    /// The record has a [`Reference`] in place of its body.
    pub has_reference: bool,
    pub counts: Counts,
    /// Checksum of what is in the record.
    pub payload_check: u64,
}

/// Where the body of a record is among those that several queues share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    pub segment: u64,
    /// The salt of the segment: its number may have been used before.
    pub salt: u64,
    /// Offset of the record with the body.
    pub at: u64,
    /// The checksum of that record's payload.
    pub check: u64,
}

/// Why a segment header is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadSegment {
    Damaged,
    /// Written by another version of profcol.
    Version(u32),
}

// === impl SegmentHeader ===

impl SegmentHeader {
    pub fn encode(&self) -> [u8; SEGMENT_HEADER] {
        let mut bytes = [0; SEGMENT_HEADER];
        let fields = [
            &MAGIC[..],
            &self.version.to_le_bytes(),
            // The low half is enough, as the name is checked too.
            &(self.number as u32).to_le_bytes(),
            &self.salt.to_le_bytes(),
        ];
        let end = fill(&mut bytes, &fields);
        let check = check(0, bytes.get(..end).unwrap_or_default());
        fill(
            bytes.get_mut(end..).unwrap_or_default(),
            &[&check.to_le_bytes()],
        );
        bytes
    }

    /// Decodes the header of segment `number`.
    pub fn decode(bytes: &[u8; SEGMENT_HEADER], number: u64) -> Result<Self, BadSegment> {
        let mut fields = Fields(bytes);
        let header = fields.take::<8>().zip(fields.u32()).zip(fields.u32());
        let rest = fields.u64().zip(fields.u64());
        let Some((((magic, version), low), (salt, stated))) = header.zip(rest) else {
            return Err(BadSegment::Damaged);
        };
        let computed = check(0, bytes.get(..SEGMENT_HEADER - 8).unwrap_or_default());
        if magic != MAGIC || stated != computed || low != number as u32 {
            return Err(BadSegment::Damaged);
        }
        if !(OLDEST_VERSION..=VERSION).contains(&version) {
            return Err(BadSegment::Version(version));
        }
        Ok(Self {
            version,
            number,
            salt,
        })
    }
}

// === impl RecordHeader ===

impl RecordHeader {
    pub fn new(salt: u64, index: u32, counts: Counts, head: &[u8], body: &[u8]) -> Option<Self> {
        Some(Self {
            index,
            head_len: u32::try_from(head.len()).ok()?,
            body_len: u32::try_from(body.len()).ok()?,
            has_reference: false,
            counts,
            payload_check: payload_check(salt, head, body),
        })
    }

    /// The header of a record with a reference to its body.
    pub fn referring(
        salt: u64,
        index: u32,
        counts: Counts,
        head: &[u8],
        reference: &[u8; REFERENCE],
        body_len: usize,
    ) -> Option<Self> {
        Some(Self {
            body_len: u32::try_from(body_len).ok()?,
            has_reference: true,
            ..Self::new(salt, index, counts, head, reference)?
        })
    }

    /// Length of the body or the reference in the record.
    pub fn stored_body_len(&self) -> usize {
        match self.has_reference {
            true => REFERENCE,
            false => self.body_len as usize,
        }
    }

    /// Length of the whole record.
    pub fn record_len(&self) -> u64 {
        RECORD_HEADER as u64 + u64::from(self.head_len) + self.stored_body_len() as u64
    }

    /// How much shorter the record is than with its body.
    pub fn saved(&self) -> u64 {
        u64::from(self.body_len).saturating_sub(self.stored_body_len() as u64)
    }

    pub fn encode(&self, salt: u64) -> [u8; RECORD_HEADER] {
        let mut bytes = [0; RECORD_HEADER];
        let kind = match self.has_reference {
            true => WITH_REFERENCE,
            false => WITH_BODY,
        };
        let fields = [
            &RECORD_MAGIC[..],
            &[kind],
            &self.index.to_le_bytes(),
            &self.head_len.to_le_bytes(),
            &self.body_len.to_le_bytes(),
            &self.counts.samples.to_le_bytes(),
            &self.counts.source_samples.to_le_bytes(),
            &self.counts.plain_bytes.to_le_bytes(),
            &self.payload_check.to_le_bytes(),
        ];
        let end = fill(&mut bytes, &fields);
        let check = check(salt, bytes.get(..end).unwrap_or_default());
        fill(
            bytes.get_mut(end..).unwrap_or_default(),
            &[&check.to_le_bytes()],
        );
        bytes
    }

    /// `None` if the bytes are not a record header of this segment.
    pub fn decode(bytes: &[u8; RECORD_HEADER], salt: u64) -> Option<Self> {
        let mut fields = Fields(bytes);
        let magic = fields.take::<3>()?;
        let has_reference = match fields.take::<1>()? {
            [WITH_BODY] => false,
            [WITH_REFERENCE] => true,
            _ => return None,
        };
        let header = Self {
            index: fields.u32()?,
            head_len: fields.u32()?,
            body_len: fields.u32()?,
            has_reference,
            counts: Counts {
                batches: 1,
                samples: fields.u64()?,
                source_samples: fields.u64()?,
                plain_bytes: fields.u64()?,
            },
            payload_check: fields.u64()?,
        };
        let computed = check(salt, bytes.get(..RECORD_HEADER - 8)?);
        (magic == RECORD_MAGIC && fields.u64()? == computed).then_some(header)
    }
}

// === impl Reference ===

impl Reference {
    pub fn encode(&self) -> [u8; REFERENCE] {
        let mut bytes = [0; REFERENCE];
        let fields = [self.segment, self.salt, self.at, self.check].map(u64::to_le_bytes);
        fill(&mut bytes, &fields.each_ref().map(|field| &field[..]));
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let reference = Self {
            segment: fields.u64()?,
            salt: fields.u64()?,
            at: fields.u64()?,
            check: fields.u64()?,
        };
        fields.0.is_empty().then_some(reference)
    }
}

/// Checksum of head and body together.
pub fn payload_check(salt: u64, head: &[u8], body: &[u8]) -> u64 {
    check(check(salt, head), body)
}

/// The entry that marks record `index` as settled.
pub fn settled_entry(salt: u64, index: u32) -> [u8; SETTLED_ENTRY] {
    let mut entry = [0; SETTLED_ENTRY];
    let index = index.to_le_bytes();
    fill(&mut entry, &[&index, &check(salt, &index).to_le_bytes()]);
    entry
}

/// `None` if the entry is damaged.
pub fn read_settled_entry(salt: u64, entry: &[u8]) -> Option<u32> {
    let mut fields = Fields(entry);
    let index = fields.u32()?;
    (fields.u64()? == check(salt, &index.to_le_bytes())).then_some(index)
}

pub fn check(salt: u64, bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(salt, bytes)
}

/// Writes consecutive fields; returns their end.
fn fill(bytes: &mut [u8], fields: &[&[u8]]) -> usize {
    let mut at = 0;
    for field in fields {
        for (place, byte) in bytes.iter_mut().skip(at).zip(*field) {
            *place = *byte;
        }
        at += field.len();
    }
    at
}

/// The unread bytes.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

// === impl Counts ===

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.batches = self.batches.saturating_add(other.batches);
        self.samples = self.samples.saturating_add(other.samples);
        self.source_samples = self.source_samples.saturating_add(other.source_samples);
        self.plain_bytes = self.plain_bytes.saturating_add(other.plain_bytes);
    }
}

impl std::ops::SubAssign for Counts {
    fn sub_assign(&mut self, other: Self) {
        self.batches = self.batches.saturating_sub(other.batches);
        self.samples = self.samples.saturating_sub(other.samples);
        self.source_samples = self.source_samples.saturating_sub(other.source_samples);
        self.plain_bytes = self.plain_bytes.saturating_sub(other.plain_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Changing this requires a new [`VERSION`].
    #[test]
    fn bytes_match_the_documented_format() {
        let segment = SegmentHeader {
            version: WITHOUT_REFERENCES,
            number: 7,
            salt: 0x0102_0304_0506_0708,
        };
        let hex = |bytes: &[u8]| {
            bytes
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<String>()
        };
        assert_eq!(
            &hex(&segment.encode())[..48],
            "50524f46434f4c5102000000070000000807060504030201"
        );
        let counts = Counts {
            batches: 1,
            samples: 2,
            source_samples: 3,
            plain_bytes: 4,
        };
        let record = RecordHeader::new(9, 5, counts, b"head", b"body").unwrap();
        assert_eq!(
            &hex(&record.encode(9))[..80],
            "b77063720500000004000000040000000200000000000000030000000000000004000000000000 00"
                .replace(' ', "")
        );
        assert_eq!(RecordHeader::decode(&record.encode(9), 9), Some(record));
        let reference = Reference {
            segment: 1,
            salt: 2,
            at: 3,
            check: 4,
        };
        let bytes = reference.encode();
        let fields = ["01", "02", "03", "04"].map(|it| format!("{it}00000000000000"));
        assert_eq!(hex(&bytes), fields.concat());
        assert_eq!(Reference::decode(&bytes), Some(reference));
        assert_eq!(Reference::decode(&bytes[1..]), None);
        let referring = RecordHeader::referring(9, 5, counts, b"head", &bytes, 1024).unwrap();
        assert_eq!(
            &hex(&referring.encode(9))[..32],
            "b7706373050000000400000000040000"
        );
        assert_eq!(
            RecordHeader::decode(&referring.encode(9), 9),
            Some(referring)
        );
        assert_eq!(
            referring.record_len(),
            (RECORD_HEADER + 4 + REFERENCE) as u64
        );
        assert_eq!(referring.saved(), (1024 - REFERENCE) as u64);
        assert_eq!(
            (record.record_len(), record.saved()),
            (RECORD_HEADER as u64 + 8, 0)
        );
        assert_eq!(SegmentHeader::decode(&segment.encode(), 7), Ok(segment));
    }

    #[test]
    fn each_flipped_bit_is_detected() {
        let segment = SegmentHeader {
            version: VERSION,
            number: 7,
            salt: 8,
        };
        let record = RecordHeader::new(8, 5, Counts::default(), b"head", b"body").unwrap();
        for bit in 0..SEGMENT_HEADER * 8 {
            let mut bytes = segment.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                SegmentHeader::decode(&bytes, 7),
                Err(BadSegment::Damaged),
                "bit {bit}"
            );
        }
        for bit in 0..RECORD_HEADER * 8 {
            let mut bytes = record.encode(8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(RecordHeader::decode(&bytes, 8), None, "bit {bit}");
        }
        for bit in 0..SETTLED_ENTRY * 8 {
            let mut bytes = settled_entry(8, 5);
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read_settled_entry(8, &bytes), None, "bit {bit}");
        }
        assert_eq!(read_settled_entry(8, &settled_entry(8, 5)), Some(5));
    }

    #[test]
    fn records_of_another_segment_are_rejected() {
        let record = RecordHeader::new(8, 5, Counts::default(), b"", b"").unwrap();
        assert_eq!(RecordHeader::decode(&record.encode(8), 9), None);
    }

    #[test]
    fn earlier_versions_are_read_and_a_later_one_distinguished_from_damage() {
        for (version, is_read) in [(0, false), (1, true), (2, true), (3, true), (4, false)] {
            let header = SegmentHeader {
                version,
                number: 1,
                salt: 2,
            };
            let expected = match is_read {
                true => Ok(header),
                false => Err(BadSegment::Version(version)),
            };
            assert_eq!(SegmentHeader::decode(&header.encode(), 1), expected);
        }
    }
}
