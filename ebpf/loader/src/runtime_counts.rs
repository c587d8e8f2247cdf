//! Counts the files with a language runtime, by version.

use std::collections::BTreeMap;

/// Maximum number of versions. Files may state any: beyond it they are [`OTHER`].
const MAX_VERSIONS: usize = 64;
const MAX_VERSION_BYTES: usize = 24;
/// Instead of a version that is not known.
const UNKNOWN: &str = "unknown";
const OTHER: &str = "other";

/// What is counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CountedRuntime {
    pub runtime: &'static str,
    pub version: String,
    pub is_supported: bool,
}

/// How many files have each runtime.
#[derive(Clone, Debug, Default)]
pub struct RuntimeCounts(BTreeMap<CountedRuntime, u64>);

impl RuntimeCounts {
    pub fn count(&mut self, runtime: &'static str, version: Option<&str>, is_supported: bool) {
        let version = version.filter(|it| is_version(it)).unwrap_or(UNKNOWN);
        let mut counted = CountedRuntime {
            runtime,
            version: version.to_owned(),
            is_supported,
        };
        if self.0.len() >= MAX_VERSIONS && !self.0.contains_key(&counted) {
            counted.version = OTHER.to_owned();
        }
        *self.0.entry(counted).or_default() += 1;
    }

    pub fn iter(&self) -> impl Iterator<Item = (&CountedRuntime, u64)> {
        self.0.iter().map(|(counted, count)| (counted, *count))
    }
}

fn is_version(text: &str) -> bool {
    let is_of_version = |byte: u8| byte.is_ascii_alphanumeric() || b".-+_".contains(&byte);
    !text.is_empty() && text.len() <= MAX_VERSION_BYTES && text.bytes().all(is_of_version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(counts: &RuntimeCounts) -> Vec<(&str, bool, u64)> {
        let counts = counts.iter();
        counts
            .map(|(it, count)| (&*it.version, it.is_supported, count))
            .collect()
    }

    #[test]
    fn versions_that_are_none_are_unknown() {
        let mut counts = RuntimeCounts::default();
        let long = "1".repeat(25);
        for version in [None, Some(""), Some("1\n2"), Some("\"1"), Some(&*long)] {
            counts.count("python", version, false);
        }
        counts.count("python", Some("3.12.1"), true);
        counts.count("python", Some("2.1.0-beta3"), true);
        let expected = [
            ("2.1.0-beta3", true, 1),
            ("3.12.1", true, 1),
            ("unknown", false, 5),
        ];
        assert_eq!(counted(&counts), expected);
    }

    #[test]
    fn the_number_of_versions_is_limited() {
        let mut counts = RuntimeCounts::default();
        for number in 0..1000 {
            counts.count("python", Some(&format!("3.{number}")), false);
        }
        counts.count("python", Some("3.0"), false);
        let counted = counted(&counts);
        assert_eq!(counted.len(), MAX_VERSIONS + 1);
        assert!(counted.contains(&("3.0", false, 2)), "{counted:?}");
        assert!(counted.contains(&(OTHER, false, 936)), "{counted:?}");
    }
}
