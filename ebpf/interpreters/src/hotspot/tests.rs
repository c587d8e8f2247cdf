//! Handmade process images: tables of releases that tests cannot run, a method, compiled code, and
//! damage.

mod image;
mod releases;

use profcol_ebpf_common::interpreter::hotspot::CodeFrame;
use profcol_ebpf_common::interpreter::{Detail, runtime};
use proptest::prelude::*;

use self::image::Image;
use self::releases::{RELEASES, Release};
use super::{Code, FrameKind, HotSpot, Layout, tables};
use crate::FunctionError;
use crate::memory::Memory;

fn hotspot(image: &Image) -> HotSpot {
    HotSpot {
        symbols: tables::Symbols::at(image.symbols),
        code_delta: 0,
    }
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
    for release in RELEASES {
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
