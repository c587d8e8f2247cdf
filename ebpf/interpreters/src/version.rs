//! A runtime version with three numbers.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    pub major: u8,
    pub minor: u8,
    pub patch: u8,
}

impl Version {
    /// The first release of each minor version that may ever be.
    pub fn first_releases() -> impl Iterator<Item = Self> {
        (0..10).flat_map(|major| {
            (0..100).map(move |minor| Self {
                major,
                minor,
                patch: 0,
            })
        })
    }

    /// `8.2`
    pub fn minor_version(self) -> String {
        format!("{}.{}", self.major, self.minor)
    }

    /// Parses `8.2.36`, without a suffix.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut numbers = str::from_utf8(text).ok()?.split('.');
        let mut next = || numbers.next()?.parse().ok();
        Some(Self {
            major: next()?,
            minor: next()?,
            patch: next()?,
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}
