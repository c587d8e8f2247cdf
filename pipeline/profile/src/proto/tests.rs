//! The reader returns what the writer wrote, and rejects each kind of malformed protobuf.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::writer::varint_len;
use super::{Reader, WireError, Writer, tag};

#[test]
fn varints_survive() {
    for shift in 0..64 {
        for value in [1u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
            let mut writer = Writer::default();
            writer.varint(value);
            let bytes = writer.into_vec();
            assert_eq!(bytes.len(), varint_len(value), "{value}");
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.varint(), Ok(value));
            assert!(reader.rest().is_empty());
        }
    }
}

#[test]
fn packed_lists_survive_in_every_mix_of_widths() {
    let widths = [1u64, 127, 128, 16_383, 16_384, u64::from(u32::MAX)];
    for seed in 0..2_000u64 {
        let mut state = seed;
        let list: Vec<u32> = (0..seed % 23)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (widths[(state >> 40) as usize % widths.len()]) as u32
            })
            .collect();
        let mut writer = Writer::default();
        writer.packed(tag::len(1), list.iter().map(|&item| u64::from(item)));
        let bytes = writer.into_vec();
        let mut read: Vec<u32> = Vec::new();
        let mut reader = Reader::new(&bytes);
        if reader.tag() == Ok(Some(tag::len(1))) {
            reader.packed_uint32(&mut read).unwrap();
        }
        assert_eq!(read, list);
    }
}

#[test]
fn a_wrong_length_estimate_is_corrected() {
    for len in [0, 1, 127, 128, 300, 20_000] {
        for expected in [0, 127, 128, 16_384, 3_000_000] {
            let body = vec![7; len];
            let mut writer = Writer::default();
            writer.nested(tag::len(1), expected, |out| out.raw(&body));
            let bytes = writer.into_vec();
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.tag(), Ok(Some(tag::len(1))));
            assert_eq!(reader.bytes(), Ok(&body[..]), "{len} {expected}");
            assert!(reader.rest().is_empty());
        }
    }
}

#[test]
fn rejects_invalid_protobuf() {
    let skip = |bytes: &[u8]| {
        let mut reader = Reader::new(bytes);
        let tag = reader.tag()?.unwrap_or_default();
        reader.skip(tag, 2)
    };
    let rows: &[(&[u8], Result<(), WireError>)] = &[
        (&[0x18, 0x01], Ok(())),
        (&[0x1d, 1, 2, 3, 4], Ok(())),
        (&[0x19, 1, 2, 3, 4, 5, 6, 7, 8], Ok(())),
        (&[0x1a, 1, 0], Ok(())),
        (&[0x1a, 2, 0], Err(WireError::Truncated)),
        (&[0x1d, 1, 2, 3], Err(WireError::Truncated)),
        (&[0x18], Err(WireError::Truncated)),
        (&[0x18, 0x80], Err(WireError::Truncated)),
        (
            &[
                0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2,
            ],
            Err(WireError::Overlong),
        ),
        (&[0x00, 1], Err(WireError::BadTag)),
        (&[0x1e, 1], Err(WireError::BadTag)),
        (&[0x1b, 0x1c], Err(WireError::Group { field: 3 })),
        (
            &[0x10, 1],
            Err(WireError::WrongType {
                field: 2,
                wire_type: 0,
            }),
        ),
        (
            &[0x1a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
            Err(WireError::Truncated),
        ),
    ];
    for (bytes, expected) in rows {
        assert_eq!(&skip(bytes), expected, "{bytes:02x?}");
    }
}
