//! Go programs: the version tells the members of the runtime's structures, the code where the current `g` is.

use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind, Register};
use profcol_ebpf_common::context::go::{Layout, labels};
use profcol_elf::Source;

use super::tls;
use crate::Unsupported;
use crate::elf_file::ElfFile;

const NAME: &str = "Go";
/// The function whose first instructions load `g`.
const LOADS_G: &str = "runtime.stackcheck";
const MAX_CODE: usize = 64;

/// The size of the header of `.go.buildinfo`; the version follows with its length before it.
const HEADER: usize = 32;
const MAGIC: &[u8] = b"\xff Go buildinf:";
const FLAGS: usize = 15;
const HAS_TEXT: u8 = 2;
const MAX_VERSION: usize = 128;

/// `1.26` of `go1.26.8 X:nogreenteagc`, or none for other texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoVersion {
    pub major: u32,
    pub minor: u32,
}

impl GoVersion {
    pub fn parse(text: &str) -> Option<Self> {
        let (_, version) = text.split_once("go")?;
        let mut numbers = version.split(|c: char| !c.is_ascii_digit());
        let mut next = || numbers.next()?.parse().ok();
        Some(Self {
            major: next()?,
            minor: next()?,
        })
    }

    /// The layout without the location of `g`.
    pub fn layout(self) -> Option<Layout> {
        let (current, id, labels, form) = match (self.major, self.minor) {
            (1, 18..=20) => (192, 152, 360, labels::MAP),
            (1, 21..=22) => (192, 152, 344, labels::MAP),
            (1, 23) => (192, 160, 352, labels::MAP),
            (1, 24) => (192, 160, 352, labels::SLICE),
            (1, 25) => (184, 152, 344, labels::SLICE),
            (1, 26..=27) => (184, 152, 352, labels::SLICE),
            _ => return None,
        };
        Some(Layout {
            tls: 0,
            m: 48,
            current,
            id,
            labels,
            form,
            frame_pointer: if self.minor < 25 { 104 } else { 96 },
        })
    }
}

/// The version in a program since Go 1.18.
pub fn version(executable: &ElfFile<'_, impl Source + ?Sized>) -> Option<String> {
    let (_, bytes) = executable.section(".go.buildinfo", HEADER + 2 + MAX_VERSION)?;
    if !bytes.starts_with(MAGIC) || bytes.get(FLAGS)? & HAS_TEXT == 0 {
        return None;
    }
    let (&length, rest) = bytes.get(HEADER..)?.split_first()?;
    // Longer texts have a length of two bytes.
    let (length, rest) = match length & 0x80 {
        0 => (usize::from(length), rest),
        _ => {
            let (&high, rest) = rest.split_first()?;
            (usize::from(length & 0x7f) | usize::from(high) << 7, rest)
        }
    };
    let text = rest.get(..length.min(MAX_VERSION))?;
    Some(str::from_utf8(text).ok()?.to_owned())
}

pub fn detect(
    executable: &ElfFile<'_, impl Source + ?Sized>,
) -> Result<Option<Layout>, Unsupported> {
    // Before Go 1.18 only a pointer leads to it.
    let Some(version) = version(executable) else {
        return Ok(None);
    };
    let unsupported = |why| Unsupported {
        runtime: NAME,
        version: version.clone(),
        why,
    };
    let layout = GoVersion::parse(&version).and_then(GoVersion::layout);
    let layout = layout.ok_or_else(|| unsupported("unknown layout of goroutines"))?;
    let tls = offset_of_g(executable)
        .ok_or_else(|| unsupported("cannot find the thread-local pointer to the goroutine"))?;
    Ok(Some(Layout { tls, ..layout }))
}

/// The offset of the pointer to `g` from the thread pointer.
fn offset_of_g(executable: &ElfFile<'_, impl Source + ?Sized>) -> Option<u64> {
    let function = executable.code.go_function(executable.source, LOADS_G)?;
    let size = usize::try_from(function.end - function.start).ok()?;
    let code = executable.loaded(function.start, size.min(MAX_CODE))?;
    loaded_offset(&code, function.start, |address| {
        tls::offset_in_slot(executable, address)
    })
}

/// The offset from which the code loads, directly or by a register that it loads before: with a constant, or
/// from a slot that the dynamic linker fills.
pub fn loaded_offset(code: &[u8], address: u64, slot: impl Fn(u64) -> Option<u64>) -> Option<u64> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut known: Option<(Register, u64)> = None;
    for instruction in decoder.iter().take(4) {
        if instruction.mnemonic() != Mnemonic::Mov || instruction.op0_kind() != OpKind::Register {
            continue;
        }
        let target = instruction.op0_register();
        if instruction.op1_kind() == OpKind::Immediate32to64 {
            known = Some((target, instruction.immediate32to64() as u64));
        } else if instruction.op1_kind() == OpKind::Memory {
            if instruction.segment_prefix() == Register::FS {
                let offset = instruction.memory_displacement64();
                return match instruction.memory_base() {
                    Register::None => Some(offset),
                    base => {
                        let (_, value) = known.filter(|&(register, _)| register == base)?;
                        Some(value.wrapping_add(offset))
                    }
                };
            }
            if instruction.is_ip_rel_memory_operand() {
                known = slot(instruction.ip_rel_memory_address()).map(|value| (target, value));
            }
        }
    }
    None
}
