//! Reads a file: the header, then the symbols, then the samples.
//!
//! The fields of a file may be in any order, usually with the strings last, so each of these takes a pass over the
//! file.

use std::borrow::Cow;

use super::budget::Budget;
use super::error::PprofError;
use super::gzip::{gunzip, is_gzip};
use super::header::{Header, profiles};
use super::samples::Reading;
use super::symbols::Symbols;
use profcol_profile::Model;

/// Memory limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Size of the decompressed file.
    pub file_bytes: usize,
    /// Size of the model: it stores samples once per sample type, and a string in each attribute that uses it.
    pub model_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            file_bytes: 64 << 20,
            model_bytes: 256 << 20,
        }
    }
}

/// Reads a profile, compressed or not. The result has neither a resource nor a scope name.
pub fn read(file: &[u8], limits: Limits) -> Result<Model, PprofError> {
    // A row takes at least one byte of the file, and row indices have 32 bits.
    let limit = limits.file_bytes.min(i32::MAX as usize);
    let file = if is_gzip(file) {
        Cow::Owned(gunzip(file, limit)?)
    } else if file.len() <= limit {
        Cow::Borrowed(file)
    } else {
        return Err(PprofError::TooLarge { limit });
    };
    let mut budget = Budget::new(limits.model_bytes);
    let mut header = Header::read(&file, &mut budget)?;
    let mut symbols = Symbols::new(std::mem::take(&mut header.texts), budget);
    symbols.read(&file)?;
    let samples = Reading::new(&mut symbols, header.sample_types.len()).read(&file)?;
    Ok(profiles(&header, symbols, samples)?)
}
