//! IL offsets of native code, and their lines.

use std::io::Write;

use flate2::Compression;
use flate2::write::DeflateEncoder;

use super::build::{Cell::Two, Image, Metadata, compressed, compressed_signed, nibbles};
use super::images::{X86_64, metadata};
use crate::{Assembly, DebugInfoFormat, DotNetError, IlMap, ImageLayout, PdbId, PortablePdb};

pub const ID: PdbId = *b"0123456789abcdef\x01\x02\x03\x04";

/// Native and IL offsets, the latter with 3 added.
const BOUNDS: [(u32, u32); 5] = [(0, 1), (20, 3), (90, 303), (90, 304), (600, 0)];

fn nibble_bounds() -> Vec<u8> {
    let mut values = vec![BOUNDS.len() as u32];
    let mut before = 0;
    for (native, il) in BOUNDS {
        values.extend([native - before, il, 2]);
        before = native;
    }
    nibbles(&values)
}

fn packed_bounds(kind_bits: u32) -> Vec<u8> {
    let (native_bits, il_bits) = (9, 10);
    let mut bits = Vec::new();
    let mut before = 0;
    for (native, il) in BOUNDS {
        let fields = [
            (3, kind_bits),
            (native - before, native_bits),
            (il, il_bits),
        ];
        for (value, count) in fields {
            bits.extend((0..count).map(|bit| (value >> bit & 1) as u8));
        }
        before = native;
    }
    let bytes = bits.chunks(8).map(|byte| {
        let bits = byte.iter().enumerate();
        bits.fold(0, |byte, (at, bit)| byte | bit << at)
    });
    let mut bounds = nibbles(&[BOUNDS.len() as u32, native_bits - 1, il_bits - 1]);
    bounds.extend(bytes);
    bounds
}

/// The front of the JIT's information with these parts.
fn front(patchpoints: Option<(usize, usize)>, inlining: bool) -> Vec<u8> {
    let mut front = vec![u8::from(patchpoints.is_some()) | u8::from(inlining) << 1];
    if let Some((size, at)) = patchpoints {
        let mut bytes = vec![0xff; size + 3 * 4];
        bytes[at..at + 4].copy_from_slice(&3_u32.to_le_bytes());
        front.extend(bytes);
    }
    if inlining {
        front.extend([5, 0, 0, 0, 9, 9, 9, 9, 9]);
    }
    front
}

#[test]
fn debug_information_of_each_format_has_the_same_bounds() {
    use DebugInfoFormat::{Jit, ReadyToRun};
    let (old, new, async_) = (nibble_bounds(), packed_bounds(2), packed_bounds(3));
    let slim = |front: &[u8], bounds: &[u8]| {
        let header = nibbles(&[bounds.len() as u32, 40]);
        [front, &header, bounds, &[0xee; 40]].concat()
    };
    let size = new.len() as u32;
    let instrumented = [
        &[0][..],
        &nibbles(&[u32::MAX, 4, size, 7]),
        &[0xdd; 4],
        &new,
    ]
    .concat();
    let size = async_.len() as u32;
    let fat = [
        &nibbles(&[0, size, 2, 0, 9, 0, 1])[..],
        &async_,
        &[0xdd; 12],
    ]
    .concat();
    let cases = [
        (ReadyToRun(3), slim(&[], &old)),
        (ReadyToRun(15), slim(&[], &old)),
        (ReadyToRun(16), slim(&[], &new)),
        (ReadyToRun(17), slim(&[], &async_)),
        (ReadyToRun(17), fat),
        (Jit(6), slim(&front(Some((20, 0)), false), &old)),
        (Jit(8), slim(&front(None, false), &old)),
        (Jit(8), slim(&front(Some((32, 8)), false), &old)),
        (Jit(9), slim(&front(Some((32, 8)), true), &old)),
        (Jit(10), slim(&front(None, true), &new)),
        (Jit(10), slim(&front(Some((40, 16)), true), &new)),
        (Jit(10), instrumented),
    ];
    for (format, bytes) in cases {
        let map = IlMap::read(&bytes, format).unwrap();
        let expected = BOUNDS.map(|(native, il)| (native, il.wrapping_sub(3)));
        assert_eq!(map.bounds(), expected, "{format:?}");
        let offsets = [0, 19, 20, 89, 90, 599, 600].map(|native| map.il_offset(native));
        let some = [
            Some(0),
            Some(0),
            Some(0),
            Some(0),
            Some(301),
            Some(301),
            None,
        ];
        assert_eq!(offsets, some, "{format:?}");
        // What it needs, and no more.
        let size = IlMap::size(&bytes, format).unwrap().unwrap() as usize;
        assert_eq!(IlMap::read(&bytes[..size], format).unwrap(), map);
        IlMap::read(&bytes[..size - 1], format).unwrap_err();
        for known in 0..size {
            let told = IlMap::size(&bytes[..known], format).unwrap();
            assert!(told.is_none_or(|told| told == size as u64));
        }
    }
    IlMap::size(&[0; 9], Jit(11)).unwrap_err();
    IlMap::size(&[4; 9], Jit(8)).unwrap_err();
    assert!(
        IlMap::read(&[0], ReadyToRun(9))
            .unwrap()
            .bounds()
            .is_empty()
    );
}

/// Documents `/src/a.cs` and `b.cs`; method 1 has points in both, method 2 none, method 3 one in the second.
pub fn pdb() -> Vec<u8> {
    let mut pdb = Metadata::pdb(ID, 3);
    let documents = [("/", &["", "src", "a.cs"][..]), ("", &["b.cs"])];
    for (separator, parts) in documents {
        let mut name = vec![separator.bytes().next().unwrap_or(0)];
        for part in parts {
            let at = match part.is_empty() {
                true => 0,
                false => match pdb.blob(part.as_bytes()) {
                    Two(at) => at.into(),
                    _ => unreachable!("blobs are small"),
                },
            };
            name.extend(compressed(at));
        }
        let name = pdb.blob(&name);
        pdb.row(0x30, &[name, Two(0), Two(0), Two(0)]);
    }
    let first = [
        // Locals, first document.
        &[0, 1][..],
        // IL 0: line 1000, columns 9 to 30.
        &[0, 0, 21],
        &compressed(1000),
        &[9],
        // IL 6: one line after, three lines long.
        &[6, 3],
        &compressed_signed(-5),
        &compressed_signed(1),
        &compressed_signed(4),
        // IL 10: hidden.
        &[4, 0, 0],
        // IL 12: another document, 400 lines before.
        &[0, 2, 2, 0, 1],
        &compressed_signed(-400),
        &compressed_signed(-70),
        // IL 300: 9000 lines after.
        &compressed(288),
        &[0, 1],
        &compressed_signed(9000),
        &compressed_signed(0),
    ]
    .concat();
    let first = pdb.blob(&first);
    pdb.row(0x31, &[Two(0), first]);
    pdb.row(0x31, &[Two(1), Two(0)]);
    // Only hidden, then line 7.
    let third = pdb.blob(&[0, 0, 0, 0, 4, 0, 1, 7, 1]);
    pdb.row(0x31, &[Two(2), third]);
    pdb.build()
}

#[test]
fn il_offsets_have_lines() {
    let file = pdb();
    let pdb = PortablePdb::read(&file, &ID).unwrap();
    let shown = |line: Result<Option<crate::SourceLine>, DotNetError>| {
        let line = line.unwrap();
        line.map(|line| format!("{}:{}", line.document, line.line))
    };
    for (method, il, expected) in [
        (1, 0, Some("/src/a.cs:1000")),
        (1, 5, Some("/src/a.cs:1000")),
        (1, 6, Some("/src/a.cs:1001")),
        (1, 11, Some("/src/a.cs:1001")),
        (1, 12, Some("b.cs:601")),
        (1, 300, Some("b.cs:9601")),
        (1, u32::MAX, Some("b.cs:9601")),
        (2, 0, None),
        (3, 3, None),
        (3, 4, Some("b.cs:7")),
        (0, 0, None),
        (4, 0, None),
    ] {
        let line = shown(pdb.line(&file, method, il));
        assert_eq!(line.as_deref(), expected, "{method} {il}");
    }
    let firsts = [1, 2, 3].map(|method| shown(pdb.first_line(&file, method)));
    let firsts: Vec<_> = firsts.iter().map(Option::as_deref).collect();
    assert_eq!(firsts, [Some("/src/a.cs:1000"), None, Some("b.cs:7")]);
}

#[test]
fn the_pdb_of_another_build_is_refused() {
    let mut id = ID;
    id[19] += 1;
    let error = PortablePdb::read(&pdb(), &id).unwrap_err();
    assert!(matches!(error, DotNetError::OtherPdb));
    // The metadata of an assembly.
    PortablePdb::read(&metadata().build(), &ID).unwrap_err();
}

pub fn image_with_pdb(claimed: u32) -> Image {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&pdb()).unwrap();
    let embedded = [
        &b"MPDB"[..],
        &claimed.to_le_bytes(),
        &encoder.finish().unwrap(),
    ]
    .concat();
    let code_view = [b"RSDS", &ID[..16], &[1, 0, 0, 0], b"/obj/built.pdb\0"].concat();
    let mut image = Image::new(X86_64, &metadata());
    let stamp = u32::from_le_bytes(*ID.last_chunk().unwrap());
    image.set_debug(&[
        (0, 0, 16, Vec::new()),
        (stamp, 0x504d, 2, code_view),
        (0, 0x100, 17, embedded),
    ]);
    image
}

#[test]
fn the_debug_directory_has_the_pdb() {
    let size = pdb().len() as u32;
    let image = image_with_pdb(size);
    for (bytes, layout) in [
        (image.file(), ImageLayout::File),
        (image.loaded(), ImageLayout::Loaded),
    ] {
        let assembly = Assembly::read(&bytes, layout).unwrap();
        let directory = assembly.debug_directory(&bytes).unwrap();
        assert_eq!(directory.pdb_path.as_deref(), Some("/obj/built.pdb"));
        assert_eq!(directory.pdb_id, Some(ID));
        assert!(directory.has_embedded_pdb());
        let embedded = directory.embedded_pdb(&bytes).unwrap().unwrap();
        assert_eq!(embedded, pdb());
        PortablePdb::read(&embedded, &ID).unwrap();
    }
    for (claimed, expected) in [(10, Some(10)), (16 << 20, Some(size)), (u32::MAX, None)] {
        let file = image_with_pdb(claimed).file();
        let assembly = Assembly::read(&file, ImageLayout::File).unwrap();
        let directory = assembly.debug_directory(&file).unwrap();
        let embedded = directory.embedded_pdb(&file).ok().flatten();
        assert_eq!(embedded.map(|pdb| pdb.len() as u32), expected, "{claimed}");
    }
    let plain = Image::new(X86_64, &metadata()).file();
    let assembly = Assembly::read(&plain, ImageLayout::File).unwrap();
    let directory = assembly.debug_directory(&plain).unwrap();
    assert!(directory.pdb_id.is_none() && !directory.has_embedded_pdb());
    assert!(directory.embedded_pdb(&plain).unwrap().is_none());
}
