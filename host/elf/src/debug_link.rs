//! `.gnu_debuglink`, the reference of a stripped executable to its debug file.

/// A file name without directory, and the CRC-32 of that file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugLink {
    pub name: String,
    pub checksum: u32,
}

impl DebugLink {
    /// The name, a zero byte, and the checksum at the next multiple of four.
    pub fn parse(section: &[u8]) -> Option<Self> {
        let end = section.iter().position(|&byte| byte == 0)?;
        let name = std::str::from_utf8(section.get(..end)?).ok()?;
        let checksum = section.get((end + 1).next_multiple_of(4)..)?;
        let checksum = u32::from_le_bytes(*checksum.first_chunk()?);
        let is_name = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
        is_name.then(|| Self {
            name: name.to_owned(),
            checksum,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_a_name_without_directory() {
        let check = |link: &[u8], expected: Option<(&str, u32)>| {
            let parsed = DebugLink::parse(link);
            let parsed = parsed.as_ref().map(|it| (&*it.name, it.checksum));
            assert_eq!(parsed, expected, "{link:?}");
        };
        check(b"abc\0\x01\x02\x03\x04", Some(("abc", 0x0403_0201)));
        check(b"a\0\0\0\x01\0\0\0", Some(("a", 1)));
        check(b"abc\0\x01\x02\x03", None);
        check(b"abc", None);
        check(b"\0\0\0\0\x01\0\0\0", None);
        check(b"..\0\0\x01\0\0\0", None);
        check(b"a/b\0\x01\0\0\0", None);
    }
}
