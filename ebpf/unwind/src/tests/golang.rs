//! A handmade table of Go functions.

use super::image::{ADDRESS, Image};
use super::{check, sp};
use profcol_ebpf_common::rule::{Cfa, PUSHED, Rule, SavedFp};

const TOP_FRAME: u8 = 1;
const WRITES_SP: u8 = 2;
const ASSEMBLY: u8 = 4;

/// Name, flags, and a stream of deltas; each function is sixteen bytes long.
type Function = (&'static str, u8, &'static [u8]);

/// The stack moves by eight bytes at the second byte and back at the tenth.
const FRAME: &[u8] = &[2, 1, 16, 8, 15, 7, 0];
const NO_FRAME: &[u8] = &[2, 16, 0];

fn table(functions: &[Function]) -> Vec<u8> {
    let (mut names, mut deltas) = (Vec::new(), vec![0]);
    let mut records = Vec::new();
    let mut functab = Vec::new();
    let behind = (functions.len() * 8 + 4) as u32;
    for (index, (name, flags, stream)) in functions.iter().enumerate() {
        functab.extend((index as u32 * 16).to_le_bytes());
        functab.extend((behind + records.len() as u32).to_le_bytes());
        for word in [
            index as u32 * 16,
            names.len() as u32,
            0,
            0,
            deltas.len() as u32,
        ] {
            records.extend(word.to_le_bytes());
        }
        records.extend([0; 20]);
        records.extend([0, *flags, 0, 0]);
        names.extend(name.bytes().chain([0]));
        deltas.extend(*stream);
    }
    functab.extend((functions.len() as u32 * 16).to_le_bytes());
    functab.extend(records);

    let mut table = 0xffff_fff1u32.to_le_bytes().to_vec();
    table.extend([0, 0, 1, 8]);
    let names_at = 72;
    let deltas_at = names_at + names.len() as u64;
    let functab_at = deltas_at + deltas.len() as u64;
    let offsets = [names_at, 0, 0, deltas_at, functab_at];
    // Without the address of the code, like the newest Go.
    for word in [functions.len() as u64, 0, 0].into_iter().chain(offsets) {
        table.extend(word.to_le_bytes());
    }
    table.extend(names);
    table.extend(deltas);
    table.extend(functab);
    // Reading a name extends some bytes past its end.
    table.extend([0; 32]);
    table
}

fn image() -> Image {
    let mut image = Image::new(0x100);
    let code = &mut image.code;
    code[0x10..0x1b].copy_from_slice(&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05, 0xcd, 3]);
    // The only handwritten function that pushes the frame pointer.
    code[0x30] = 0x55;
    let code = code.clone();
    image.section(".text", ADDRESS, code).section(
        ".gopclntab",
        0,
        table(&[
            ("main.main", 0, FRAME),
            ("runtime.sigreturn__sigaction", ASSEMBLY, NO_FRAME),
            ("runtime.goexit", TOP_FRAME | ASSEMBLY, NO_FRAME),
            ("runtime.systemstack", WRITES_SP | ASSEMBLY, FRAME),
            ("runtime.gogo", WRITES_SP | ASSEMBLY, NO_FRAME),
            ("runtime.sigtramp", TOP_FRAME | ASSEMBLY, FRAME),
            ("main.none", 0, &[]),
            ("main.endless", 0, &[2, 0, 2, 0]),
        ]),
    )
}

#[test]
fn reads_the_rules_of_go_functions() {
    let saved = SavedFp::At(-16);
    check(
        &image(),
        &[
            (0x00, sp(8)),
            (0x01, Rule::frame(Cfa::Sp(16), saved, PUSHED)),
            (0x08, Rule::frame(Cfa::Sp(16), saved, PUSHED)),
            (0x09, sp(8)),
            // One byte before, too.
            (0x0f, Rule::SignalFrame),
            (0x18, Rule::SignalFrame),
            (0x20, Rule::End),
            (0x30, sp(8)),
            // After the push, before the stack moves.
            (0x31, Rule::frame(Cfa::Sp(16), saved, PUSHED)),
            (0x33, Rule::frame(Cfa::Sp(16), saved, PUSHED)),
            (0x34, Rule::OtherStack),
            (0x38, Rule::OtherStack),
            (0x39, sp(8)),
            (0x40, Rule::Unsupported),
            (0x51, sp(16)),
            (0x60, Rule::Unsupported),
            (0x70, Rule::Unsupported),
            (0x80, Rule::Gap),
        ],
    );
}
