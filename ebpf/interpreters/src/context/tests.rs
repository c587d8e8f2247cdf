//! Layouts by version of Go, and the thread-local offset of `g` in handmade x86-64 instructions.

use super::go::{GoVersion, loaded_offset};

#[test]
fn layouts_are_known_by_version() {
    for (text, labels) in [
        ("go1.18", Some(360)),
        ("go1.20.14", Some(360)),
        ("go1.22.1 X:nocoverageredesign", Some(344)),
        ("go1.24.9", Some(352)),
        ("go1.25rc1", Some(344)),
        ("go1.27.0", Some(352)),
        ("devel go1.27-5c2e7d1a3f Tue Mar 3", Some(352)),
        ("go1.17", None),
        ("go1.28", None),
        ("go2.20", None),
        ("go1", None),
        ("1.26", None),
        ("", None),
    ] {
        let layout = GoVersion::parse(text).and_then(GoVersion::layout);
        assert_eq!(layout.map(|layout| layout.labels), labels, "{text:?}");
    }
}

#[test]
fn the_code_tells_where_g_is() {
    const BELOW: u64 = 8u64.wrapping_neg();
    let slot = |address| (address == 0x2000).then_some(BELOW);
    for (code, offset) in [
        // mov rax, fs:[-8]
        (
            &[0x64, 0x48, 0x8b, 0x04, 0x25, 0xf8, 0xff, 0xff, 0xff][..],
            Some(BELOW),
        ),
        // mov rcx, -8; mov rax, fs:[rcx]
        (
            &[
                0x48, 0xc7, 0xc1, 0xf8, 0xff, 0xff, 0xff, 0x64, 0x48, 0x8b, 0x01,
            ],
            Some(BELOW),
        ),
        // mov rcx, [rip+0xff9]; mov rax, fs:[rcx]
        (
            &[0x48, 0x8b, 0x0d, 0xf9, 0x0f, 0, 0, 0x64, 0x48, 0x8b, 0x01],
            Some(BELOW),
        ),
        // A slot that nobody fills.
        (
            &[0x48, 0x8b, 0x0d, 0xf1, 0x0f, 0, 0, 0x64, 0x48, 0x8b, 0x01],
            None,
        ),
        // mov rax, fs:[rdx]
        (&[0x64, 0x48, 0x8b, 0x02], None),
        (&[0xc3], None),
        (&[], None),
    ] {
        assert_eq!(loaded_offset(code, 0x1000, slot), offset, "{code:02x?}");
    }
}
