//! Names addresses of a file: `symbolize FILE ADDRESS...`, or addresses from standard input.

#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use std::fs::File;
use std::io::BufRead;
use std::rc::Rc;

use profcol_symbols::{Style, Symbols, demangle};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = File::open(arguments.next().ok_or("which file?")?)?;
    let mut symbols = Symbols::read(Rc::new(file), || None, 1 << 30)?;
    let mut addresses: Vec<String> = arguments.collect();
    if addresses.is_empty() {
        addresses = std::io::stdin().lock().lines().collect::<Result<_, _>>()?;
    }
    for address in addresses {
        let number = u64::from_str_radix(address.trim().trim_start_matches("0x"), 16)?;
        match symbols.find(number) {
            Ok(frames) => {
                for frame in frames {
                    let name = demangle(&frame.name, Style::Full).unwrap_or(frame.name);
                    let file = if frame.file.is_empty() {
                        "??"
                    } else {
                        &frame.file
                    };
                    println!("{name}\n{file}:{}:{}", frame.line, frame.column);
                }
            }
            Err(_) => println!("??\n??:0:0"),
        }
        println!();
    }
    Ok(())
}
