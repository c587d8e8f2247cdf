//! Paths in the format of the programs: the path components, innermost first.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// NUL-terminated names. The name of the root is empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Names<'a>(&'a [u8]);

impl<'a> Names<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// An absolute path if the names reach the root, else only its end, because it is too long. Empty if
    /// unknown.
    pub fn path(self) -> PathBuf {
        let Some(names) = self.0.strip_suffix(b"\0") else {
            return PathBuf::new();
        };
        if names.is_empty() {
            return "/".into();
        }
        let mut path = Vec::with_capacity(names.len());
        for (index, name) in names.rsplit(|&byte| byte == 0).enumerate() {
            if index > 0 {
                path.push(b'/');
            }
            path.extend(name);
        }
        OsString::from_vec(path).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_names_into_a_path() {
        for (names, expected) in [
            ("", ""),
            ("\0", "/"),
            ("true\0bin\0usr\0\0", "/usr/bin/true"),
            ("c\0b\0", "b/c"),
            ("a name\0\0", "/a name"),
            ("no end", ""),
        ] {
            let path = Names::new(names.as_bytes()).path();
            assert_eq!(path.to_str(), Some(expected), "{names:?}");
        }
    }
}
