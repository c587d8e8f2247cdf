//! The topics that a receiver subscribes to.

use std::collections::BTreeSet;

use regex::Regex;

use super::config::ProfilesConfig;

#[derive(Debug)]
pub(super) struct Topics {
    names: BTreeSet<String>,
    patterns: Vec<Regex>,
    excluded: Vec<Regex>,
}

impl Topics {
    pub(super) fn new(config: &ProfilesConfig) -> Result<Self, regex::Error> {
        let (patterns, names): (Vec<&String>, Vec<&String>) = config
            .topics
            .iter()
            .partition(|topic| topic.starts_with('^'));
        let compile = |texts: Vec<&String>| -> Result<Vec<Regex>, regex::Error> {
            texts.into_iter().map(|text| Regex::new(text)).collect()
        };
        Ok(Self {
            names: names.into_iter().cloned().collect(),
            patterns: compile(patterns)?,
            excluded: compile(config.exclude_topics.iter().collect())?,
        })
    }

    /// Whether the topics depend on what the cluster has.
    pub(super) fn have_patterns(&self) -> bool {
        !self.patterns.is_empty()
    }

    pub(super) fn names(&self) -> &BTreeSet<String> {
        &self.names
    }

    /// The topics to subscribe to, of those that the cluster has.
    pub(super) fn among(&self, existing: &[String]) -> BTreeSet<String> {
        let matches =
            |patterns: &[Regex], topic: &str| patterns.iter().any(|it| it.is_match(topic));
        let is_wanted = |topic: &&String| {
            self.names.contains(*topic)
                || matches(&self.patterns, topic) && !matches(&self.excluded, topic)
        };
        existing.iter().filter(is_wanted).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_choose_among_existing_topics() {
        let list = |texts: &[&str]| {
            texts
                .iter()
                .map(|&text| text.to_owned())
                .collect::<Vec<_>>()
        };
        let config = ProfilesConfig {
            topics: list(&["named", "missing", "^profiles-"]),
            exclude_topics: list(&["test"]),
            ..ProfilesConfig::default()
        };
        let topics = Topics::new(&config).unwrap();
        let existing = list(&["named", "profiles-a", "profiles-test", "other-profiles-b"]);
        let chosen: Vec<String> = topics.among(&existing).into_iter().collect();
        assert_eq!(chosen, ["named", "profiles-a"]);
    }
}
