//! What the kernel says about the BPF programs and maps of a process, in `/proc/PID/fdinfo`.

use std::collections::HashSet;
use std::fs;

use anyhow::{Context, Result};

/// `BPF_PROG_TYPE_PERF_EVENT`.
const PERF_EVENT: u64 = 7;

/// The programs on perf events and the maps that a process holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    pub runs: u64,
    pub nanoseconds: u64,
    pub verified: u64,
    pub map_bytes: u64,
}

impl Facts {
    pub fn of(pid: u32) -> Result<Self> {
        let folder = format!("/proc/{pid}/fdinfo");
        let mut facts = Self::default();
        let (mut programs, mut maps) = (HashSet::new(), HashSet::new());
        for entry in fs::read_dir(&folder).with_context(|| format!("failed to list {folder}"))? {
            // A file that was closed since it was listed has no text any more.
            let text = fs::read_to_string(entry?.path()).unwrap_or_default();
            let number = |key: &str| number(&text, key).unwrap_or_default();
            if number("prog_type") == PERF_EVENT && programs.insert(number("prog_id")) {
                facts.runs += number("run_cnt");
                facts.nanoseconds += number("run_time_ns");
                facts.verified += number("verified_insns");
            } else if number("map_id") != 0 && maps.insert(number("map_id")) {
                facts.map_bytes += number("memlock");
            }
        }
        Ok(facts)
    }
}

fn number(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        line.strip_prefix(key)?
            .strip_prefix(':')?
            .trim()
            .parse()
            .ok()
    })
}

/// Lets the kernel count runs and their time as long as the value lives. It costs each run about 130 ns, which
/// [`crate::floor`] measures.
pub struct Stats {
    before: String,
}

const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";

impl Stats {
    pub fn enable() -> Result<Self> {
        let before =
            fs::read_to_string(SWITCH).with_context(|| format!("failed to read {SWITCH}"))?;
        fs::write(SWITCH, "1")
            .with_context(|| format!("failed to write {SWITCH}; this needs root"))?;
        Ok(Self { before })
    }
}

impl Drop for Stats {
    fn drop(&mut self) {
        // There is nobody left to tell; the switch costs little.
        let _ = fs::write(SWITCH, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_number_behind_its_key() {
        let text = "pos:\t0\nprog_type:\t7\nmemlock:\t8192\nrun_cnt:\t12\n";
        assert_eq!(number(text, "run_cnt"), Some(12));
        assert_eq!(number(text, "run"), None);
        assert_eq!(number(text, "absent"), None);
    }
}
