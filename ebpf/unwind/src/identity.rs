//! IDs of executables without a build id.

use profcol_elf::Source;
use ring::digest::{Context, SHA256};
use std::io;

/// Bytes hashed from each end of the file.
const END: u64 = 4096;

/// `process.executable.build_id.htlhash` of the semantic conventions: the first half of the SHA-256
/// of the file's first 4 KiB, its last 4 KiB and its length.
pub fn htlhash(source: &(impl Source + ?Sized)) -> io::Result<[u8; 16]> {
    let length = source.length()?;
    let end = length.min(END);
    let mut bytes = vec![0; end as usize];
    let mut context = Context::new(&SHA256);
    for offset in [0, length - end] {
        source.read_at(&mut bytes, offset)?;
        context.update(&bytes);
    }
    context.update(&length.to_be_bytes());
    let digest = context.finish();
    let mut hash = [0; 16];
    hash.copy_from_slice(&digest.as_ref()[..16]);
    Ok(hash)
}
