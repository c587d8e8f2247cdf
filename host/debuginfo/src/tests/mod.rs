//! Hand-made files of every kind of damage, and real ones that have to keep their names.

mod compressed;
mod hostile;
mod image;
mod memory;
mod program;
mod real;

use std::io::Read;

use crate::{Extraction, Plan, Refused};

fn strip(file: &[u8]) -> Result<Vec<u8>, Refused> {
    let extraction = Extraction::of(Plan::strip(file)?, file);
    let size = extraction.size();
    let mut stripped = Vec::new();
    let mut extraction = extraction;
    extraction.read_to_end(&mut stripped).unwrap();
    assert_eq!(stripped.len() as u64, size, "the size was known before");
    Ok(stripped)
}
