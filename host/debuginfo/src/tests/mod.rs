//! Handmade files with every kind of damage, and real files that must keep their symbols.

mod compressed;
mod hostile;
mod image;
mod memory;
mod program;
mod real;

use std::io::Read;

use crate::{ExtractError, Extraction, Plan};

fn strip(file: &[u8]) -> Result<Vec<u8>, ExtractError> {
    let extraction = Extraction::of(Plan::strip(file)?, file);
    let size = extraction.size();
    let mut stripped = Vec::new();
    let mut extraction = extraction;
    extraction.read_to_end(&mut stripped).unwrap();
    assert_eq!(stripped.len() as u64, size, "matches the planned size");
    Ok(stripped)
}
