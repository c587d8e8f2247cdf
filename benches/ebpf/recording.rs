//! The samples that profcol wrote to a file.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::Path;

use anyhow::Result;
use profcol_otlp::json;
use profcol_profile::Model;

/// A stack with one or more timestamps.
pub struct Recorded {
    pub pid: u32,
    pub parent: u32,
    pub has_name: bool,
    /// Why it is incomplete.
    pub end: Option<String>,
    /// Unix time in nanoseconds.
    pub times: Vec<u64>,
}

pub fn read(path: &Path) -> Result<Vec<Recorded>> {
    let mut recorded = Vec::new();
    for line in fs::read(path)?.split(|&byte| byte == b'\n') {
        // The last line may be incomplete.
        if let Ok(model) = json::decode(line) {
            add(&model, &mut recorded);
        }
    }
    Ok(recorded)
}

fn add(model: &Model, recorded: &mut Vec<Recorded>) {
    let dictionary = &*model.dictionary;
    for resource in &model.resources {
        let attributes = || {
            let resource = resource.resource.iter();
            resource.flat_map(|resource| &resource.attributes)
        };
        let number = |key: &str| {
            let mut matching = attributes().filter(|attribute| &*attribute.key == key);
            let number = matching.next()?.value.as_int()?;
            u32::try_from(number).ok()
        };
        let Some(pid) = number("process.pid") else {
            continue;
        };
        let has_name = attributes().any(|attribute| {
            let is_name = &*attribute.key == "process.executable.name";
            is_name
                && attribute
                    .value
                    .as_str()
                    .is_some_and(|name| !name.is_empty())
        });
        for profile in resource.scopes.iter().flat_map(|scope| &scope.profiles) {
            for sample in profile.samples.iter() {
                let end = sample.attributes.iter().find_map(|&index| {
                    let attribute = dictionary.attributes.get(index)?;
                    let key = dictionary.strings.get(attribute.key);
                    let is_end = key == "profcol.stack.end_reason";
                    is_end.then(|| attribute.value.as_str().unwrap_or_default().to_owned())
                });
                recorded.push(Recorded {
                    pid,
                    parent: number("process.parent_pid").unwrap_or_default(),
                    has_name,
                    end,
                    times: sample.timestamps.to_vec(),
                });
            }
        }
    }
}

/// The samples of these processes and their descendants.
pub fn of_processes<'r>(recorded: &'r [Recorded], pids: &[u32]) -> Vec<&'r Recorded> {
    let parents: HashMap<u32, u32> = recorded.iter().map(|r| (r.pid, r.parent)).collect();
    let included: HashSet<u32> = pids.iter().copied().collect();
    let is_theirs = |recorded: &&Recorded| {
        let mut pid = recorded.pid;
        // Processes are nested no deeper than this here; PIDs may be reused.
        for _ in 0..16 {
            if included.contains(&pid) {
                return true;
            }
            let Some(&parent) = parents.get(&pid) else {
                break;
            };
            pid = parent;
        }
        false
    };
    recorded.iter().filter(is_theirs).collect()
}

/// Samples by stack end reason, including `whole`.
pub fn reasons(recorded: &[&Recorded]) -> BTreeMap<String, usize> {
    let mut reasons = BTreeMap::new();
    for sample in recorded {
        let reason = sample.end.as_deref().unwrap_or(WHOLE).to_owned();
        *reasons.entry(reason).or_default() += sample.times.len();
    }
    reasons
}

pub const WHOLE: &str = "whole";
