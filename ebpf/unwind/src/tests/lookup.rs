//! Real files: each lookup says what a search for that one address says, and no damage to a file
//! does more than to have it refused.

use crate::cfi::Bytes;
use crate::rules::Facts;
use crate::sections::FrameBytes;
use crate::{Executable, Table};
use gimli::{EhFrame, LittleEndian, UnwindContext, UnwindSection};
use profcol_ebpf_common::rule::Rule;
use proptest::prelude::*;
use std::fs::File;
use std::sync::OnceLock;

struct Real {
    executable: Executable,
    table: Table,
    frames: FrameBytes,
}

fn real() -> &'static Real {
    static REAL: OnceLock<Real> = OnceLock::new();
    REAL.get_or_init(|| {
        let file = File::open("/bin/sh").expect("every system has a shell");
        let executable = Executable::read(&file).expect("the shell is an executable");
        Real {
            table: Table::build(&executable, &file).expect("it has a table"),
            frames: FrameBytes::read(&executable, &file).expect("it has unwind information"),
            executable,
        }
    })
}

/// What gimli finds for one address.
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
        machine: real.executable.machine,
        section: &eh_frame.content,
        row,
        return_address: fde.cie().return_address_register(),
        signal: fde.is_signal_trampoline(),
    };
    Some(facts.rule())
}

proptest! {
    #[test]
    fn a_lookup_says_what_a_search_says(at in any::<prop::sample::Index>()) {
        let real = real();
        let code = real.executable.segments[0];
        let offset = at.index(code.file_size as usize) as u64;
        if let Some(expected) = searched(real, code.address + offset) {
            prop_assert_eq!(real.table.lookup(code.file_offset + offset), expected);
        }
    }

    #[test]
    fn damage_is_survived(
        cut in any::<Option<prop::sample::Index>>(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
        head in any::<bool>(),
    ) {
        let mut bytes = std::fs::read("/bin/true").expect("every system has it");
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        for (at, byte) in flips {
            // Most of what matters stands in the first bytes.
            let limit = if head { bytes.len().min(1024) } else { bytes.len() };
            if limit > 0 {
                bytes[at.index(limit)] = byte;
            }
        }
        if let Ok(executable) = Executable::read(&bytes)
            && let Ok(table) = Table::build(&executable, &bytes)
        {
            let length = bytes.len() as u64;
            for offset in [0, length / 2, length, u64::MAX] {
                table.lookup(offset);
            }
            prop_assert!(table.bytes() < 16 * bytes.len() + 4096);
        }
    }
}
