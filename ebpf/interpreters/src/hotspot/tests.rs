//! Handmade process images: tables of releases that tests cannot run, a method, compiled code, and
//! damage.

mod image;
mod releases;

use std::fs;
use std::path::Path;

use profcol_ebpf_common::interpreter::hotspot::CodeFrame;
use profcol_ebpf_common::interpreter::{Detail, runtime};
use profcol_ebpf_unwind::ElfCode;
use profcol_test_skip::skip;
use proptest::prelude::*;

use self::image::Image;
use self::releases::{RELEASES, Release};
use super::file_image::FileImage;
use super::{Code, FrameKind, HotSpot, Layout, Version, tables};
use crate::FunctionError;
use crate::elf_file::ElfFile;
use crate::memory::Memory;

fn hotspot(image: &Image) -> HotSpot {
    HotSpot::with_exports(image.symbols)
}

fn layout(image: &Image) -> Layout {
    let layout = Layout::read(&hotspot(image), image, image.bias);
    layout.expect("readable").expect("filled")
}

fn found(runtime: u32, function: u64, generation: u32, position: u32) -> CodeFrame {
    CodeFrame {
        runtime,
        function,
        detail: Detail::new(generation, position),
    }
}

fn read(image: &Image, layout: &Layout, frame: CodeFrame) -> Result<Code, FunctionError> {
    let CodeFrame {
        runtime,
        function,
        detail,
    } = frame;
    let generation = detail.generation();
    Code::read(layout, image, image.bias, runtime, function, generation)
}

/// Name and line of each frame.
fn named(
    image: &Image,
    layout: &Layout,
    frame: CodeFrame,
) -> Vec<(FrameKind, String, String, u32)> {
    let code = read(image, layout, frame).expect("readable");
    let frames = code.frames(frame.detail.position()).into_iter();
    frames
        .map(|frame| (frame.kind, frame.name, frame.file, frame.line))
        .collect()
}

fn expected(kind: FrameKind, method: &str, line: u32) -> (FrameKind, String, String, u32) {
    (kind, format!("a.b.C.{method}"), "C.java".into(), line)
}

#[test]
fn names_methods_in_each_release() {
    for release in RELEASES {
        let image = Image::new(release);
        let layout = layout(&image);
        assert_eq!(layout.version.major, release.major);
        let cookie = (image.const_method("outer") >> 3) as u32;
        let frame = |bci| {
            found(
                runtime::HOTSPOT_INTERPRETED,
                image.method("outer"),
                cookie,
                bci,
            )
        };
        let kind = FrameKind::Interpreted;
        assert_eq!(
            named(&image, &layout, frame(0)),
            [expected(kind, "outer", 7)]
        );
        assert_eq!(
            named(&image, &layout, frame(5)),
            [expected(kind, "outer", 8)]
        );
        let stale = found(
            runtime::HOTSPOT_INTERPRETED,
            image.method("outer"),
            cookie + 1,
            0,
        );
        assert!(matches!(
            read(&image, &layout, stale),
            Err(FunctionError::Replaced)
        ));
    }
}

#[test]
fn compiled_code_has_inlined_functions() {
    // Tables that do not lead to the methods which scopes refer to.
    let oldest = &RELEASES[0];
    let members = oldest.members.iter().copied();
    let members: Vec<_> = members.filter(|it| it.1 != "_oops_offset").collect();
    let without_metadata = Release {
        has_metadata: false,
        members: members.leak(),
        ..oldest.clone()
    };
    for release in RELEASES.iter().chain([&without_metadata]) {
        let image = Image::new(release);
        let layout = layout(&image);
        let frame = |offset| {
            found(
                runtime::HOTSPOT_COMPILED,
                image.nmethod(),
                image::COMPILE_ID,
                offset,
            )
        };
        let outermost = |line| expected(FrameKind::Compiled, "outer", line);
        let inlined = expected(FrameKind::Inlined, "inner", 7);
        let (alone, both) = if release.has_metadata {
            (vec![outermost(8)], vec![inlined, outermost(8)])
        } else {
            // Without lines, too.
            (vec![outermost(7)], vec![outermost(7)])
        };
        assert_eq!(named(&image, &layout, frame(8)), alone, "{}", release.major);
        assert_eq!(named(&image, &layout, frame(9)), both, "{}", release.major);
        assert_eq!(named(&image, &layout, frame(16)), both, "{}", release.major);
        let edge = profcol_ebpf_common::interpreter::hotspot::EDGE;
        assert_eq!(named(&image, &layout, frame(edge)), [outermost(7)]);
        let stale = found(runtime::HOTSPOT_COMPILED, image.nmethod(), 1, 8);
        assert!(matches!(
            read(&image, &layout, stale),
            Err(FunctionError::Replaced)
        ));
    }
}

#[test]
fn unfilled_tables_are_not_ready() {
    let mut image = Image::new(&RELEASES[1]);
    let [structs, ..] = image.symbols;
    image.set_word(structs + image.bias, 0);
    let read = Layout::read(&hotspot(&image), &image, image.bias);
    assert!(matches!(read, Ok(None)));
}

#[test]
fn rejects_an_unknown_release() {
    for major in [7, 26] {
        let image = Image::new(&Release {
            major,
            ..RELEASES[2].clone()
        });
        let error = Layout::read(&hotspot(&image), &image, image.bias).expect_err("it is refused");
        let expected =
            format!("HotSpot {major}.0.3 is not supported: only JDK 8 to 25 are supported");
        assert_eq!(error.to_string(), expected);
    }
}

/// Each JDK that is installed, as the release that it states, with the file of its runtime.
fn installed() -> Vec<(String, Vec<u8>)> {
    let folders = fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten();
    let folders = folders.map(|folder| folder.path());
    let jdks = folders.filter_map(|folder| {
        if folder.is_symlink() {
            return None;
        }
        let release = fs::read_to_string(folder.join("release")).ok()?;
        let mut lines = release.lines();
        let version = lines.find_map(|line| line.strip_prefix("JAVA_VERSION="))?;
        let library = fs::read(folder.join("lib/server/libjvm.so")).ok()?;
        Some((version.trim_matches('"').to_owned(), library))
    });
    let found: Vec<_> = jdks.collect();
    if found.is_empty() {
        skip("no JDK below /usr/lib/jvm");
    }
    found
}

/// Where a file states its version.
fn place_of_version(library: &[u8]) -> usize {
    let code = ElfCode::read(library).unwrap();
    let file = ElfFile::read(&code, library).unwrap();
    let symbols = tables::Symbols::find(&file).unwrap();
    let tables = tables::Tables::read_file(&symbols, &FileImage::new(&file)).unwrap();
    let address = tables.address("Abstract_VM_Version", "_vm_major_version");
    let address = address.unwrap();
    let segment = file.elf.loaded(0).find(|it| it.holds(address)).unwrap();
    (segment.file_offset + address - segment.address) as usize
}

#[test]
fn the_file_states_the_version() {
    for (release, mut library) in installed() {
        let detect = |library: &[u8]| HotSpot::detect(&ElfCode::read(library).unwrap(), library);
        let found = detect(&library).unwrap().unwrap();
        let version = found.version.unwrap();
        assert_eq!(version.to_string(), release);
        let place = place_of_version(&library);
        library[place] = 26;
        let error = detect(&library).unwrap_err();
        let expected = Version {
            major: 26,
            ..version
        };
        let expected = expected.to_string();
        assert_eq!(error.version(), Some(&*expected));
        assert_eq!(
            error.to_string(),
            format!("HotSpot {expected} is not supported: only JDK 8 to 25 are supported")
        );
    }
}

#[test]
fn a_process_with_another_version_than_its_file_is_rejected() {
    let image = Image::new(&RELEASES[2]);
    let of_file = |major| HotSpot {
        version: Some(Version {
            major,
            security: None,
        }),
        ..hotspot(&image)
    };
    let major = RELEASES[2].major;
    let read = |major| Layout::read(&of_file(major), &image, image.bias);
    assert!(matches!(read(major), Ok(Some(_))));
    assert!(matches!(read(major - 1), Err(FunctionError::Invalid(_))));
}

/// `UPDATE=1` rewrites them.
#[test]
fn fuzzing_starts_from_these_images() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/hotspot");
    for release in RELEASES {
        let image = Image::new(release);
        let words = image.symbols.iter().copied();
        let words = words.chain([
            image.bias,
            image.method("outer"),
            (image.const_method("outer") >> 3) & 0xffff_ffff,
            image.nmethod(),
            image::COMPILE_ID.into(),
        ]);
        let mut seed: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        seed.extend(image.used());
        let path = seeds.join(format!("jdk-{}", release.major));
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, &seed).unwrap();
        }
        assert!(fs::read(&path).unwrap() == seed, "{}", path.display());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Any damage leads to an error or another name, and reads stay within the limits.
    #[test]
    fn survives_damaged_images(
        release in 0..RELEASES.len(),
        damage in proptest::collection::vec((any::<u16>(), any::<u8>()), 1..40),
        position in 0u32..40,
    ) {
        let mut image = Image::new(&RELEASES[release]);
        let layout = layout(&image);
        let (method, nmethod) = (image.method("outer"), image.nmethod());
        let cookie = (image.const_method("outer") >> 3) as u32;
        for (at, byte) in damage {
            image.damage(at.into(), byte);
        }
        let _ = Layout::read(&hotspot(&image), &image, image.bias);
        let _ = layout.code_cache(&image, image.bias);
        for frame in [
            found(runtime::HOTSPOT_INTERPRETED, method, cookie, position),
            found(runtime::HOTSPOT_COMPILED, nmethod, image::COMPILE_ID, position),
            found(runtime::HOTSPOT_STUB, nmethod, 0, position),
        ] {
            if let Ok(code) = read(&image, &layout, frame) {
                prop_assert!((1..=64).contains(&code.frames(position).len()));
            }
        }
        prop_assert!(image.bytes(u64::MAX - 3, 8).is_err());
    }
}
