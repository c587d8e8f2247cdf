//! Prints the size and build time of the unwind table of each file: `cargo run --release --example table -- FILE...`

use profcol_ebpf_unwind::{ElfCode, Table};
use std::fs::File;
use std::time::{Duration, Instant};

#[allow(clippy::print_stdout, reason = "a program to be run by hand")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args().skip(1) {
        let file = File::open(&path)?;
        let mut best = Duration::MAX;
        for _ in 0..10 {
            let begin = Instant::now();
            let table = Table::build(&ElfCode::read(&file)?, &file)?;
            best = best.min(begin.elapsed());
            drop(table);
        }
        let table = Table::build(&ElfCode::read(&file)?, &file)?;
        println!(
            "{path}: {} rows, {} rules, {} KiB in {best:?}, {:.1} M rows/s",
            table.rows.len(),
            table.rules.len(),
            table.bytes() >> 10,
            table.rows.len() as f64 / best.as_secs_f64() / 1e6,
        );
    }
    Ok(())
}
