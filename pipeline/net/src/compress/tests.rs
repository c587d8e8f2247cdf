//! Round trips in each encoding, bombs, random and damaged bytes, and sizes compared with those of Go's gzip.

use std::io::Write;

use proptest::prelude::*;

use super::*;

const ALL: [Encoding; 6] = [
    Encoding::Gzip,
    Encoding::Zlib,
    Encoding::Zstd,
    Encoding::Snappy,
    Encoding::SnappyFramed,
    Encoding::Lz4,
];

/// A few hundred KB that compress like a profile.
fn text() -> Vec<u8> {
    (0..20_000u32)
        .flat_map(|i| format!("frame {} of {}\n", i * i % 997, i % 31).into_bytes())
        .collect()
}

#[test]
fn every_encoding_round_trips() {
    for plain in [&b""[..], b"x", &text()] {
        for encoding in ALL {
            let bytes = compress(encoding, Level::default(), plain);
            let read = decompress(encoding, &bytes, plain.len());
            assert_eq!(read.unwrap(), plain, "{encoding}");
        }
    }
}

#[test]
fn higher_levels_compress_better() {
    for encoding in [Encoding::Gzip, Encoding::Zlib, Encoding::Zstd] {
        let size = |level| compress(encoding, Level(level), &text()).len();
        assert!(size(9) < size(1), "{encoding}");
    }
}

#[test]
fn a_bomb_is_refused_and_the_error_names_the_limit() {
    let bomb = vec![0; 10_000_000];
    for encoding in ALL {
        let bytes = compress(encoding, Level::default(), &bomb);
        let error = decompress(encoding, &bytes, 1_000_000).unwrap_err();
        assert!(
            matches!(error, DecompressError::TooLarge { limit: 1_000_000 }),
            "{encoding}: {error}"
        );
        assert_eq!(
            error.to_string(),
            "decompressed size exceeds the limit of 1000000 bytes"
        );
        assert!(
            decompress(encoding, &bytes, 10_000_000).is_ok(),
            "{encoding}"
        );
    }
}

#[test]
fn buffers_are_admitted_before_allocation() {
    const LIMIT: u64 = 1_000_000;
    let admission = Admission::with_memory_reader(|| Some(0), LIMIT);
    for encoding in ALL {
        // When reading in steps of a quarter, one step exceeds the limit: filled bytes count in the reading, which is
        // constant here.
        let large = compress(encoding, Level::default(), &vec![0; 8_000_000]);
        let refused = decompress_admitted(&admission, encoding, &large, usize::MAX);
        assert!(
            matches!(refused, Err(DecompressError::Exhausted(_))),
            "{encoding}"
        );
        // The reservation is released when done.
        for _ in 0..3 {
            let fits = compress(encoding, Level::default(), &[7; 400_000]);
            let plain = decompress_admitted(&admission, encoding, &fits, usize::MAX);
            assert_eq!(plain.unwrap().0.len(), 400_000, "{encoding}");
        }
    }
    admission.reserve(LIMIT as usize).unwrap();
}

#[tokio::test]
async fn a_request_that_expands_is_moved_to_a_blocking_thread() {
    let admission = Admission::unlimited();
    for encoding in ALL {
        for size in [
            1000,
            MAX_INLINE_OUTPUT,
            MAX_INLINE_OUTPUT + 1,
            3 * MAX_INLINE_OUTPUT,
        ] {
            let plain = vec![0; size];
            let bytes = compress(encoding, Level::default(), &plain);
            let decompressed = decompress_request(&admission, encoding, &bytes, size).await;
            assert_eq!(decompressed.unwrap().0, plain, "{encoding} {size}");
            let too_large = decompress_request(&admission, encoding, &bytes, size - 1).await;
            assert!(
                matches!(too_large, Err(DecompressError::TooLarge { limit }) if limit == size - 1),
                "{encoding} {size}: {too_large:?}"
            );
        }
    }
}

#[test]
fn a_multi_member_gzip_is_fully_decoded() {
    let twice = [&text()[..], &text()[..]].concat();
    let member = compress(Encoding::Gzip, Level::default(), &text());
    let both = [&member[..], &member[..]].concat();
    let read = decompress(Encoding::Gzip, &both, twice.len());
    assert_eq!(read.unwrap(), twice);
    assert!(decompress(Encoding::Gzip, &both, twice.len() - 1).is_err());
}

#[test]
fn multiple_zstd_frames_and_frames_without_size_are_fully_decoded() {
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
    encoder.write_all(&text()).unwrap();
    let unsized_frame = encoder.finish().unwrap();
    let both = [
        &compress(Encoding::Zstd, Level(1), b"head ")[..],
        &unsized_frame[..],
    ]
    .concat();
    let plain = [&b"head "[..], &text()[..]].concat();
    let read = decompress(Encoding::Zstd, &both, 10 << 20);
    assert_eq!(read.unwrap(), plain);
}

#[test]
fn a_wrong_size_in_a_gzip_trailer_is_detected() {
    let mut bytes = compress(Encoding::Gzip, Level::default(), &text()).to_vec();
    let size = bytes.len() - 4;
    for announced in [0u32, 1, u32::MAX] {
        bytes[size..].copy_from_slice(&announced.to_le_bytes());
        assert!(
            decompress(Encoding::Gzip, &bytes, 64 << 20).is_err(),
            "{announced}"
        );
    }
}

#[test]
fn snappy_over_http_is_detected_by_content() {
    let framed = compress(Encoding::SnappyFramed, Level::default(), b"x");
    let block = compress(Encoding::Snappy, Level::default(), b"x");
    assert_eq!(
        Encoding::from_http("snappy", &framed),
        Some(Encoding::SnappyFramed)
    );
    assert_eq!(
        Encoding::from_http("snappy", &block),
        Some(Encoding::Snappy)
    );
}

#[test]
fn grpc_names_mean_the_formats_of_go() {
    for name in GRPC_ACCEPTED.split(',') {
        let encoding = Encoding::from_grpc(name).unwrap();
        assert_eq!(encoding.to_grpc(), Some(name));
    }
    assert_eq!(Encoding::from_grpc("snappy"), Some(Encoding::SnappyFramed));
    let error = Compression::Lz4.for_grpc().unwrap_err();
    assert!(error.to_string().contains("\"lz4\""));
}

#[test]
fn levels_are_checked_as_the_collector_does() {
    for (compression, level, fine) in [
        (Compression::Gzip, 9, true),
        (Compression::Gzip, -2, true),
        (Compression::Gzip, 10, false),
        (Compression::Zstd, 22, true),
        (Compression::Snappy, 0, true),
        (Compression::Snappy, 1, false),
    ] {
        assert_eq!(
            compression.check_level(Level(level)).is_ok(),
            fine,
            "{compression:?} {level}"
        );
    }
}

/// Sizes of Go's `compress/gzip` at its default level.
#[test]
fn gzip_is_never_larger_than_go_s() {
    let dir = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/golden/otlp/generated/"
    );
    for (name, go) in [
        ("small-00", 68_577),
        ("medium-00", 185_255),
        ("large-00", 372_205),
    ] {
        let plain = std::fs::read(format!("{dir}{name}.pb")).unwrap();
        let ours = compress(Encoding::Gzip, Level::default(), &plain).len();
        assert!(ours <= go, "{name}: {ours} > {go}");
    }
}

proptest! {
    #[test]
    fn random_bytes_are_refused_or_bounded(bytes: Vec<u8>, which in 0usize..6) {
        if let Ok(plain) = decompress(ALL[which], &bytes, 1000) {
            prop_assert!(plain.len() <= 1000);
        }
    }

    #[test]
    fn damaged_bytes_are_refused_or_bounded(at: prop::sample::Index, flip in 1u8.., cut: prop::sample::Index, which in 0usize..6) {
        let mut bytes = compress(ALL[which], Level::default(), &text()[..5000]).to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        bytes.truncate(cut.index(bytes.len()) + 1);
        if let Ok(plain) = decompress(ALL[which], &bytes, 6000) {
            prop_assert!(plain.len() <= 6000);
        }
    }
}

#[test]
fn an_error_has_the_library_s_reason_as_its_source() {
    for encoding in ALL {
        let error = decompress(encoding, b"\xff\xff\xff\xff\xff\xff", 1000).unwrap_err();
        let source = error
            .source()
            .unwrap_or_else(|| panic!("{encoding}: {error}"));
        assert_eq!(
            error.to_string(),
            format!("invalid {encoding} data: {source}")
        );
    }
}
