//! Executable files. For any table, all pages and rows are in order.

#![cfg_attr(fuzzing, no_main)]

use profcol_ebpf_unwind::{ElfCode, Index, Table, htlhash};
use profcol_fuzz::fuzz_target;

fuzz_target!(|data: &[u8]| {
    htlhash(data).expect("memory can be read");
    let Ok(elf) = ElfCode::read(data) else {
        return;
    };
    if let Ok(index) = Index::open(&elf, data) {
        let count = (data.len() as u64 >> 12) + 1;
        if let Ok(table) = index.pages(data, 0, count) {
            assert_eq!((table.first_page, table.pages.len() as u64), (0, count));
        }
        for page in 0..count {
            if let Ok(table) = index.pages(data, page, 1) {
                assert_eq!((table.first_page, table.pages.len()), (page, 1));
            }
        }
    }
    let Ok(table) = Table::build(&elf, data) else {
        return;
    };
    let mut rows = 0;
    for page in &table.pages {
        let first = page.rows as usize;
        let of_page = &table.rows[first..first + page.count as usize];
        assert!(of_page.is_sorted_by(|a, b| a.offset() < b.offset()));
        assert!(
            of_page
                .iter()
                .all(|row| (row.rule() as usize) < table.rules.len())
        );
        rows += of_page.len();
    }
    assert_eq!(rows, table.rows.len());
    for at in [0, data.len() as u64 / 2, data.len() as u64, u64::MAX] {
        table.lookup(at);
    }
});
