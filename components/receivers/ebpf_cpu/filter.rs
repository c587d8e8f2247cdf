//! Which processes are profiled.
//!
//! Decided once per process, at its first sample. From then on the kernel skips excluded processes; samples
//! taken before that are dropped here.

use std::collections::{HashMap, VecDeque};

use profcol_ebpf_loader::ProcessKey;

use super::config::{EbpfCpuConfig, RuleConfig};
use super::pattern::{Pattern, PatternError};

#[derive(Debug)]
struct FilterRule {
    comm: Option<Pattern>,
    executable: Option<Pattern>,
    cgroup: Option<Pattern>,
    pid: Option<u32>,
    uid: Option<u32>,
}

#[derive(Debug, Default)]
pub struct Filter {
    include: Vec<FilterRule>,
    exclude: Vec<FilterRule>,
    decided: HashMap<ProcessKey, bool>,
    latest: HashMap<u32, ProcessKey>,
    /// Processes in the order of their first samples.
    order: VecDeque<ProcessKey>,
    limit: usize,
}

/// The fields that rules match; an unknown one matches no rule.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessFacts<'a> {
    pub comm: &'a str,
    pub executable: Option<&'a str>,
    pub cgroup: Option<&'a str>,
    pub pid: u32,
    pub uid: u32,
}

impl Filter {
    pub fn new(config: &EbpfCpuConfig) -> Result<Self, PatternError> {
        let rules = |rules: &[RuleConfig]| -> Result<Vec<FilterRule>, PatternError> {
            rules.iter().map(FilterRule::new).collect()
        };
        Ok(Self {
            include: rules(&config.include)?,
            exclude: rules(&config.exclude)?,
            limit: config.max_processes as usize,
            ..Self::default()
        })
    }

    /// Whether every process is profiled.
    pub fn matches_all(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }

    /// The decision about the process, if there is one.
    pub fn decision(&self, process: &ProcessKey) -> Option<bool> {
        self.decided.get(process).copied()
    }

    /// The decision about the last process with this PID, if there is one.
    pub fn latest_decision(&self, pid: u32) -> Option<bool> {
        self.decision(self.latest.get(&pid)?)
    }

    /// Decides whether the process is profiled.
    pub fn decide(&mut self, process: ProcessKey, facts: ProcessFacts<'_>) -> bool {
        let is_included = self.is_included(facts);
        if self.decided.insert(process, is_included).is_none() {
            self.order.push_back(process);
        }
        self.latest.insert(process.pid, process);
        if self.order.len() > self.limit
            && let Some(first) = self.order.pop_front()
        {
            self.decided.remove(&first);
            if self.latest.get(&first.pid) == Some(&first) {
                self.latest.remove(&first.pid);
            }
        }
        is_included
    }

    fn is_included(&self, facts: ProcessFacts<'_>) -> bool {
        let any = |rules: &[FilterRule]| rules.iter().any(|rule| rule.matches(facts));
        (self.include.is_empty() || any(&self.include)) && !any(&self.exclude)
    }
}

impl FilterRule {
    fn new(config: &RuleConfig) -> Result<Self, PatternError> {
        let pattern = |text: &Option<String>| text.as_deref().map(Pattern::new).transpose();
        Ok(Self {
            comm: pattern(&config.comm)?,
            executable: pattern(&config.executable)?,
            cgroup: pattern(&config.cgroup)?,
            pid: config.pid,
            uid: config.uid,
        })
    }

    fn matches(&self, facts: ProcessFacts<'_>) -> bool {
        let text = |pattern: &Option<Pattern>, text: Option<&str>| match pattern {
            Some(pattern) => text.is_some_and(|text| pattern.matches(text)),
            None => true,
        };
        text(&self.comm, Some(facts.comm))
            && text(&self.executable, facts.executable)
            && text(&self.cgroup, facts.cgroup)
            && self.pid.is_none_or(|pid| pid == facts.pid)
            && self.uid.is_none_or(|uid| uid == facts.uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(pid: u32) -> ProcessKey {
        ProcessKey {
            pid,
            ..ProcessKey::default()
        }
    }

    fn config(text: &str) -> EbpfCpuConfig {
        serde_json::from_str(text).expect("valid configuration")
    }

    #[test]
    fn profiles_processes_that_are_included_and_not_excluded() {
        let facts = ProcessFacts {
            comm: "nginx",
            executable: Some("/usr/sbin/nginx"),
            cgroup: Some("/kubepods/pod1/abc"),
            pid: 17,
            uid: 33,
        };
        let check = |text: &str, expected: bool| {
            let filter = Filter::new(&config(text)).expect("valid patterns");
            assert_eq!(filter.is_included(facts), expected, "{text}");
        };
        check("{}", true);
        check(r#"{"include": [{"comm": "ngi*"}]}"#, true);
        check(r#"{"include": [{"comm": "ngi"}]}"#, false);
        check(r#"{"include": [{"comm": "regex:^n.*x$"}]}"#, true);
        check(r#"{"include": [{"executable": "/usr/*"}]}"#, true);
        check(
            r#"{"include": [{"executable": "/bin/*"}, {"uid": 33}]}"#,
            true,
        );
        check(
            r#"{"include": [{"executable": "/usr/*", "uid": 34}]}"#,
            false,
        );
        check(r#"{"exclude": [{"cgroup": "/kubepods/*"}]}"#, false);
        check(r#"{"exclude": [{"pid": 18}]}"#, true);
        check(
            r#"{"include": [{"pid": 17}], "exclude": [{"comm": "n?inx"}]}"#,
            false,
        );
    }

    #[test]
    fn unknown_fields_match_no_rule() {
        let filter = |text| Filter::new(&config(text)).expect("valid patterns");
        let facts = ProcessFacts::default();
        assert!(!filter(r#"{"include": [{"executable": "*"}]}"#).is_included(facts));
        assert!(filter(r#"{"exclude": [{"cgroup": "*"}]}"#).is_included(facts));
    }

    #[test]
    fn remembers_a_bounded_number_of_decisions() {
        let mut filter = Filter::new(&config(r#"{"exclude": [{"pid": 2}], "max_processes": 2}"#))
            .expect("valid patterns");
        for pid in 1..=3 {
            let facts = ProcessFacts {
                pid,
                ..ProcessFacts::default()
            };
            assert_eq!(filter.decide(key(pid), facts), pid != 2);
        }
        let decisions = [1, 2, 3].map(|pid| filter.decision(&key(pid)));
        assert_eq!(decisions, [None, Some(false), Some(true)]);
        let latest = [1, 2, 3].map(|pid| filter.latest_decision(pid));
        assert_eq!(latest, decisions);
    }

    #[test]
    fn a_reused_pid_has_the_decision_of_the_last_process() {
        let mut filter =
            Filter::new(&config(r#"{"include": [{"comm": "new"}]}"#)).expect("valid patterns");
        for (exec, comm) in [(0, "old"), (1, "new")] {
            let facts = ProcessFacts {
                comm,
                ..ProcessFacts::default()
            };
            let process = ProcessKey { exec, ..key(1) };
            assert_eq!(filter.decide(process, facts), comm == "new");
            assert_eq!(filter.latest_decision(1), Some(comm == "new"));
        }
    }
}
