//! The mappings of a process.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Take};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::file_key::FileKey;

/// Size limit of a list, which a process can make arbitrarily long: enough for half a million mappings.
const MAX_BYTES: u64 = 64 << 20;
/// Size limit of a line. Longer paths are cut off: no system call takes them.
const MAX_LINE_BYTES: u64 = 8 << 10;

const HEX: u32 = 16;

/// A mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub range: Range<u64>,
    /// For example `r-xp`.
    pub permissions: [u8; 4],
    pub offset: u64,
    /// None for anonymous memory.
    pub file: Option<FileKey>,
    /// As the process sees it, or saw it before it was deleted. For other memory its name in brackets, or empty.
    pub path: PathBuf,
}

/// The mappings in a list, ordered by address. Lines in another format are skipped.
pub struct Mappings<R> {
    text: Take<R>,
    line: Vec<u8>,
}

/// The mappings of the process, or of the thread, with this directory in `/proc`.
pub fn mappings(process: &Path) -> io::Result<Mappings<BufReader<File>>> {
    let maps = File::open(process.join("maps"))?;
    Ok(Mappings::new(BufReader::new(maps)))
}

impl<R: BufRead> Mappings<R> {
    /// Reads a list in the format of `/proc/PID/maps`.
    pub fn new(text: R) -> Self {
        Self {
            text: text.take(MAX_BYTES),
            line: Vec::new(),
        }
    }

    /// Whether there is one more line. The last one is ignored unless it is whole.
    fn read_line(&mut self) -> io::Result<bool> {
        self.line.clear();
        let mut beginning = Read::take(&mut self.text, MAX_LINE_BYTES);
        beginning.read_until(b'\n', &mut self.line)?;
        let is_whole = self.line.pop_if(|last| *last == b'\n').is_some();
        let is_cut_off = !is_whole && beginning.limit() == 0;
        if is_cut_off {
            self.text.skip_until(b'\n')?;
        }
        Ok(is_whole || is_cut_off)
    }
}

impl<R: BufRead> Iterator for Mappings<R> {
    type Item = io::Result<Mapping>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.read_line() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
            if let Some(mapping) = Mapping::parse(&self.line) {
                return Some(Ok(mapping));
            }
        }
    }
}

impl Mapping {
    /// `55d0c0000000-55d0c0021000 r-xp 00002000 08:01 1234   /usr/bin/a b`
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.splitn(6, |&byte| byte == b' ');
        let [range, permissions, offset, device, inode] = std::array::from_fn(|_| fields.next());
        let (start, end) = numbers(range?, '-', HEX)?;
        let (major, minor) = numbers(device?, ':', HEX)?;
        let key = FileKey::new(major, minor, number(inode?, 10)?)?;
        let path = fields.next().unwrap_or_default().trim_ascii_start();
        let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
        (start <= end).then_some(Self {
            range: start..end,
            permissions: permissions?.try_into().ok()?,
            offset: number(offset?, HEX)?,
            file: (key.inode != 0).then_some(key),
            path: OsStr::from_bytes(path).into(),
        })
    }

    /// The name of its file.
    pub fn name(&self) -> Option<&str> {
        self.path.file_name()?.to_str()
    }

    pub fn is_code(&self) -> bool {
        self.permissions.contains(&b'x')
    }
}

/// Two numbers, such as the range of a mapping.
pub fn numbers(text: &[u8], separator: char, radix: u32) -> Option<(u64, u64)> {
    let (first, second) = str::from_utf8(text).ok()?.split_once(separator)?;
    let number = |text| u64::from_str_radix(text, radix).ok();
    Some((number(first)?, number(second)?))
}

fn number(text: &[u8], radix: u32) -> Option<u64> {
    u64::from_str_radix(str::from_utf8(text).ok()?, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(maps: &[u8]) -> Vec<Mapping> {
        Mappings::new(maps).map(Result::unwrap).collect()
    }

    #[test]
    fn reads_each_kind_of_mapping() {
        let maps = b"\
00400000-00401000 r--p 00000000 fe:00 42    /usr/bin/with space
00401000-00406000 r-xp 00001000 08:113 43                        /usr/bin/gone (deleted)
nonsense
5000-4000 r-xp 00000000 00:00 0
7f00a0000000-7f00a0001000 rwxp 00000000 00:00 0 
7ffd1d5fe000-7ffd1d600000 r-xp 00000000 00:00 0                  [vdso]
7ffd1d600000-7ffd1d601000 rw-s 00000000 00:01 9                  /tmp/\xff (deleted)
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0          [vsys";
        let mapping =
            |range, permissions: &[u8; 4], offset, file: Option<(u64, u64, u64)>, path: &[u8]| {
                Mapping {
                    range,
                    permissions: *permissions,
                    offset,
                    file: file.and_then(|(major, minor, inode)| FileKey::new(major, minor, inode)),
                    path: OsStr::from_bytes(path).into(),
                }
            };
        assert_eq!(
            parse(maps),
            [
                mapping(
                    0x40_0000..0x40_1000,
                    b"r--p",
                    0,
                    Some((0xfe, 0, 42)),
                    b"/usr/bin/with space"
                ),
                mapping(
                    0x40_1000..0x40_6000,
                    b"r-xp",
                    0x1000,
                    Some((8, 0x113, 43)),
                    b"/usr/bin/gone"
                ),
                mapping(0x7f00_a000_0000..0x7f00_a000_1000, b"rwxp", 0, None, b""),
                mapping(
                    0x7ffd_1d5f_e000..0x7ffd_1d60_0000,
                    b"r-xp",
                    0,
                    None,
                    b"[vdso]"
                ),
                mapping(
                    0x7ffd_1d60_0000..0x7ffd_1d60_1000,
                    b"rw-s",
                    0,
                    Some((0, 1, 9)),
                    b"/tmp/\xff"
                ),
            ]
        );
        assert_eq!(parse(maps).iter().filter(|it| it.is_code()).count(), 3);
    }

    #[test]
    fn long_paths_are_cut_off_and_long_lists_end() {
        let line = |path: &str| format!("1000-2000 r-xp 00000000 08:01 7 /{path}\n");
        let long = line(&"x".repeat(3 * MAX_LINE_BYTES as usize));
        let found = parse((long + &line("next")).as_bytes());
        assert_eq!(found.len(), 2);
        assert!(found[0].path.as_os_str().len() < MAX_LINE_BYTES as usize);
        assert_eq!(found[1].path, Path::new("/next"));

        let line = line("repeated");
        let endless = BufReader::new(io::repeat(0));
        let endless = line.as_bytes().chain(endless);
        assert_eq!(Mappings::new(endless).count(), 1);
        let repeated = line.repeat(2 * MAX_BYTES as usize / line.len());
        assert_eq!(
            parse(repeated.as_bytes()).len(),
            MAX_BYTES as usize / line.len()
        );
    }

    #[test]
    fn finds_the_code_of_this_process() {
        let own = parse as *const () as u64;
        let mut own_mappings = mappings(Path::new("/proc/self")).unwrap();
        let found = own_mappings.find_map(|it| it.ok().filter(|it| it.range.contains(&own)));
        assert!(found.is_some_and(|it| it.is_code() && it.file.is_some()));
    }
}
