//! Procedure linkage tables: the stubs for calls to other libraries.
//!
//! Not every linker writes unwind information for them, so their code is recognized. Entries are sixteen bytes:
//!
//! ```text
//! header        push GOT[1]; jmp GOT[2]
//! lazy          jmp GOT[n]; push n; jmp header          pushed at byte 11
//! lazy, marked  endbr64; push n; jmp header             pushed at byte 9
//! lazy, bound   push n; bnd jmp header                  pushed at byte 5
//! direct        [endbr64;] jmp GOT[n]                   pushes nothing
//! direct, mold  endbr64; mov n, r11d; jmp GOT[n]        pushes nothing, the header pushes r11
//! ```

use crate::ElfCode;
use crate::code::Section;
use profcol_ebpf_common::rule::{Cfa, ReturnAddress, Rule, SavedFp};
use profcol_elf::{Machine, Source};

const ENTRY: usize = 16;
/// Room for a quarter of a million imported functions.
const MAX_TABLE: u64 = 4 << 20;

const MARK: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// Address ranges and their rules.
pub(crate) fn stubs(elf: &ElfCode, source: &(impl Source + ?Sized)) -> Vec<(u64, u64, Rule)> {
    let mut stubs = Stubs::default();
    for name in [".plt", ".plt.got", ".plt.sec", ".plt.bnd"] {
        let Some(section) = elf.section(name) else {
            continue;
        };
        let Ok(bytes) = section.extent.read(source, MAX_TABLE) else {
            continue;
        };
        match elf.machine {
            Machine::X86_64 => stubs.x86_64(section, &bytes),
            Machine::Aarch64 => stubs.aarch64(section, &bytes),
        }
    }
    stubs.0
}

#[derive(Default)]
struct Stubs(Vec<(u64, u64, Rule)>);

impl Stubs {
    fn push(&mut self, start: u64, length: usize, rule: Rule) {
        let end = start.saturating_add(length as u64);
        match self.0.last_mut() {
            Some(last) if last.1 == start && last.2 == rule => last.1 = end,
            _ => self.0.push((start, end, rule)),
        }
    }

    fn x86_64(&mut self, section: &Section, bytes: &[u8]) {
        let pushes = |words: i32| Rule::x86_64(Cfa::Sp(8 * (1 + words)), SavedFp::Same);
        let mut address = section.address;
        let mut rest = bytes;
        while let [_, ..] = rest {
            let length = match rest {
                // The jumping entry has pushed the number of the function.
                [0xff, 0x35, ..] => {
                    self.push(address, 6, pushes(1));
                    self.push(address.saturating_add(6), ENTRY - 6, pushes(2));
                    ENTRY
                }
                // mold's header is two entries long and pushes the number itself.
                [0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x53, 0xff, 0x35, ..] => {
                    self.push(address, 6, pushes(0));
                    self.push(address.saturating_add(6), 6, pushes(1));
                    self.push(address.saturating_add(12), 2 * ENTRY - 12, pushes(2));
                    2 * ENTRY
                }
                _ => {
                    let (entry, rule) = entry(rest, pushes(0));
                    self.push(address, entry, rule);
                    entry
                }
            };
            address = address.saturating_add(length as u64);
            rest = rest.get(length..).unwrap_or_default();
        }
    }

    /// Entries do not change the stack; the header saves two registers first.
    fn aarch64(&mut self, section: &Section, bytes: &[u8]) {
        const SAVE: [u8; 4] = [0xf0, 0x7b, 0xbf, 0xa9];
        let leaf = Rule::frame(Cfa::Sp(0), SavedFp::Same, ReturnAddress::LinkRegister);
        let saved = Rule::frame(Cfa::Sp(16), SavedFp::Same, ReturnAddress::At(-8));
        let header = bytes
            .chunks_exact(4)
            .take(2)
            .position(|instruction| instruction == SAVE);
        let mut start = 0;
        if let Some(index) = header {
            start = 4 * (index + 1);
            self.push(section.address, start, leaf);
            self.push(
                section.address.saturating_add(start as u64),
                32 - start,
                saved,
            );
            start = 32;
        }
        if bytes.len() > start {
            self.push(
                section.address.saturating_add(start as u64),
                bytes.len() - start,
                leaf,
            );
        }
    }
}

/// The length and rule of the entry that begins here. An unknown entry moves the stack in an unknown way, and
/// certainly keeps no frame pointer, so it is unsupported.
fn entry(bytes: &[u8], unmoved: Rule) -> (usize, Rule) {
    let marked = bytes.strip_prefix(&MARK);
    let rule = match (bytes, marked) {
        ([0xff, 0x25, _, _, _, _, 0x68, ..], _) => Rule::Plt { pushed: 11 },
        (_, Some([0x68, ..])) => Rule::Plt { pushed: 9 },
        ([0x68, ..], _) => Rule::Plt { pushed: 5 },
        // `.plt.got` has entries of eight bytes.
        ([0xff, 0x25, ..], _) => return (ENTRY / 2, unmoved),
        ([0xf2, 0xff, 0x25, ..], _) => return (ENTRY / 2, unmoved),
        (_, Some([0xff, 0x25, ..] | [0xf2, 0xff, 0x25, ..] | [0x41, 0xbb, ..])) => unmoved,
        _ => Rule::Unsupported,
    };
    (ENTRY, rule)
}
