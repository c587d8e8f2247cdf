//! Real files: each look-up matches gimli's search for that address, and damaged files are at worst rejected.

use crate::rules::Bytes;
use crate::rules::Facts;
use crate::sections::FrameBytes;
use crate::{ElfCode, Index, Table};
use gimli::{EhFrame, LittleEndian, UnwindContext, UnwindSection};
use profcol_ebpf_common::rule::Rule;
use profcol_ebpf_common::table::PAGE_SHIFT;
use proptest::prelude::*;
use std::fs::File;
use std::path::Path;
use std::sync::OnceLock;

struct Real {
    elf: ElfCode,
    table: Table,
    frames: FrameBytes,
}

fn real() -> &'static Real {
    static REAL: OnceLock<Real> = OnceLock::new();
    REAL.get_or_init(|| {
        let file = File::open("/bin/sh").expect("every system has a shell");
        let elf = ElfCode::read(&file).expect("the shell is an executable");
        Real {
            table: Table::build(&elf, &file).expect("it has a table"),
            frames: FrameBytes::read(&elf, &file).expect("it has unwind information"),
            elf,
        }
    })
}

/// gimli's result for one address.
fn searched(real: &Real, pc: u64) -> Option<Rule> {
    let eh_frame = real.frames.eh_frame.as_ref()?;
    let mut section = EhFrame::from(Bytes::new(&eh_frame.content, LittleEndian));
    section.set_address_size(8);
    let fde = section
        .fde_for_address(&eh_frame.bases, pc, EhFrame::cie_from_offset)
        .ok()?;
    let mut context = UnwindContext::new();
    let row = fde
        .unwind_info_for_address(&section, &eh_frame.bases, &mut context, pc)
        .ok()?;
    let facts = Facts {
        machine: real.elf.machine,
        section: &eh_frame.content,
        row,
        return_address: fde.cie().return_address_register(),
        signal: fde.is_signal_trampoline(),
    };
    Some(facts.rule())
}

#[test]
fn single_pages_match_the_whole_table() {
    let own = std::env::current_exe().expect("this test is a file");
    for path in [Path::new("/bin/sh"), &own] {
        let file = File::open(path).expect("it opens");
        let elf = ElfCode::read(&file).expect("it is an executable");
        let table = Table::build(&elf, &file).expect("it has a table");
        let index = Index::open(&elf, &file).expect("it has a search table");
        let count = table.pages.len() as u64;
        let together = index
            .pages(&file, table.first_page, count)
            .expect("it has unwind information");
        let (mut rules, mut rules_by_pages) = (0, 0);
        for number in (0..table.pages.len() as u64).map(|index| table.first_page + index) {
            let page = index
                .pages(&file, number, 1)
                .expect("it has unwind information");
            for offset in number << PAGE_SHIFT..(number + 1) << PAGE_SHIFT {
                let (by_page, whole) = (page.lookup(offset), table.lookup(offset));
                assert_eq!(together.lookup(offset), by_page, "at {offset:#x}");
                // Only whole tables have the entry rule and rules derived from instructions.
                assert!(
                    by_page == whole || by_page == Rule::Gap || whole == Rule::End,
                    "{by_page:?}, not {whole:?} at {offset:#x}"
                );
                rules += usize::from(whole != Rule::Gap);
                rules_by_pages += usize::from(by_page != Rule::Gap);
            }
        }
        assert!(
            rules_by_pages * 100 > rules * 98,
            "{rules_by_pages} of {rules}"
        );
    }
}

#[test]
fn reads_the_vdso() {
    use std::os::unix::fs::FileExt;
    let maps = std::fs::read_to_string("/proc/self/maps").expect("proc is mounted");
    let line = maps.lines().find(|line| line.ends_with("[vdso]"));
    let range = line
        .and_then(|line| line.split_once(' '))
        .map(|(range, _)| range);
    let (start, end) = range
        .and_then(|range| range.split_once('-'))
        .expect("there is one");
    let number = |text| u64::from_str_radix(text, 16).expect("it is an address");
    let mut image = vec![0; (number(end) - number(start)) as usize];
    let memory = File::open("/proc/self/mem").expect("own memory opens");
    memory
        .read_exact_at(&mut image, number(start))
        .expect("it is mapped");
    let elf = ElfCode::read(&image).expect("it is an ELF file");
    assert_eq!(elf.segments[0].file_offset, 0);
    let table = Table::build(&elf, &image).expect("it has a table");
    assert!(table.rows.len() > 10 && table.first_page == 0);
}

proptest! {
    #[test]
    fn a_lookup_matches_a_search(at in any::<prop::sample::Index>()) {
        let real = real();
        let code = real.elf.segments[0];
        let offset = at.index(code.file_size as usize) as u64;
        if let Some(expected) = searched(real, code.address + offset) {
            prop_assert_eq!(real.table.lookup(code.file_offset + offset), expected);
        }
    }

    #[test]
    fn survives_damage(
        cut in any::<Option<prop::sample::Index>>(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
        head in any::<bool>(),
    ) {
        let mut bytes = std::fs::read("/bin/true").expect("every system has it");
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        for (at, byte) in flips {
            // The first bytes matter most.
            let limit = if head { bytes.len().min(1024) } else { bytes.len() };
            if limit > 0 {
                bytes[at.index(limit)] = byte;
            }
        }
        if let Ok(elf) = ElfCode::read(&bytes)
            && let Ok(index) = Index::open(&elf, &bytes)
        {
            for page in 0..bytes.len() as u64 / 4096 + 1 {
                let _ = index.pages(&bytes, page, 1);
            }
        }
        if let Ok(elf) = ElfCode::read(&bytes)
            && let Ok(table) = Table::build(&elf, &bytes)
        {
            let length = bytes.len() as u64;
            for offset in [0, length / 2, length, u64::MAX] {
                table.lookup(offset);
            }
            prop_assert!(table.bytes() < 16 * bytes.len() + 4096);
        }
    }
}
