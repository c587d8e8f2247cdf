//! Mappings of a process, by their names.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

/// Maximum size of `/proc/PID/maps`, which a process can make arbitrarily long.
const MAX_MAPS_BYTES: u64 = 64 << 20;

/// Device and inode as in `/proc/PID/maps`.
pub type FileKey = (String, String);

/// A mapping of code.
pub struct Mapping {
    pub file: FileKey,
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    /// Where the file can be opened.
    pub paths: [PathBuf; 2],
}

/// Calls `visit` with each mapping of code and its name, which is empty if it has none, until that returns a value.
pub fn find_code<T>(pid: u32, mut visit: impl FnMut(&str, Mapping) -> Option<T>) -> Option<T> {
    find(pid, |name, mode, mapping| {
        let is_code = mode.contains('x');
        is_code.then(|| visit(name, mapping)).flatten()
    })
}

/// The path of the file that is mapped at an address.
pub fn mapped_path(pid: u32, address: u64) -> Option<String> {
    find(pid, |name, _, mapping| {
        let is_it = (mapping.start..mapping.end).contains(&address);
        is_it.then(|| name.to_owned())
    })
    .filter(|name| name.starts_with('/'))
}

/// Calls `visit` with the name, the mode and the range of each mapping.
fn find<T>(pid: u32, mut visit: impl FnMut(&str, &str, Mapping) -> Option<T>) -> Option<T> {
    let maps = File::open(format!("/proc/{pid}/maps")).ok()?;
    let mut lines = BufReader::new(maps.take(MAX_MAPS_BYTES));
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line).ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end().trim_end_matches(" (deleted)");
        let mut words = text.splitn(6, ' ');
        let range = words.next()?;
        let (mode, offset, device, inode) =
            (words.next()?, words.next()?, words.next()?, words.next()?);
        let path = words.next().unwrap_or_default().trim_start();
        let (start, end) = range.split_once('-')?;
        let found = Mapping {
            file: (device.to_owned(), inode.to_owned()),
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            offset: u64::from_str_radix(offset, 16).ok()?,
            paths: [
                format!("/proc/{pid}/map_files/{range}").into(),
                format!("/proc/{pid}/root{path}").into(),
            ],
        };
        if let Some(found) = visit(path, mode, found) {
            return Some(found);
        }
    }
}
