//! Symbolizes addresses of a file from standard input, like `llvm-symbolizer`.
//!
//! `symbolize [--no-demangle] FILE < ADDRESSES`

use std::fs::File;
use std::io::{BufRead, BufWriter, Write};
use std::rc::Rc;

use profcol_symbols::{OnHost, Style, Symbols, demangle};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_plain = arguments.first().is_some_and(|it| it == "--no-demangle");
    let path = arguments.pop().ok_or("missing FILE argument")?;
    let path = std::fs::canonicalize(path)?;
    let file = File::open(&path)?;
    let debug = vec!["/usr/lib/debug".into()];
    let companions = OnHost::new(vec!["/".into()], path, debug, || true);
    let mut symbols = Symbols::read(Rc::new(file), Rc::new(companions), 1 << 30)?;
    let mut output = BufWriter::new(std::io::stdout().lock());
    let mut input = std::io::stdin().lock();
    let mut line = String::new();
    while input.read_line(&mut line)? > 0 {
        let address = u64::from_str_radix(line.trim_end().trim_start_matches("0x"), 16)?;
        for frame in symbols.find(address).unwrap_or_default() {
            let shown = match is_plain {
                true => None,
                false => demangle(&frame.name, Style::Full),
            };
            let name = shown.as_deref().unwrap_or(&frame.name);
            writeln!(
                output,
                "{name}\n{}:{}:{}",
                frame.file, frame.line, frame.column
            )?;
        }
        writeln!(output)?;
        line.clear();
    }
    Ok(())
}
