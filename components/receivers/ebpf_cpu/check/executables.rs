//! How much of the code that runs on this host has unwind information.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use profcol_component::Check;
use profcol_ebpf_loader::{Unwinding, unwinding};

use super::Processes;

const NAME: &str = "unwinding";
/// Number of files listed by name.
const SHOWN: usize = 3;
/// Percentage of files with unwind information below which the check warns.
const WARN_BELOW_PERCENT: usize = 90;

#[derive(Default)]
struct Survey {
    described: usize,
    /// Unwound by instruction analysis on x86-64, else by frame pointers.
    undescribed: Vec<String>,
    unreadable: Vec<String>,
    not_looked_at: usize,
}

/// Checks each file once, until `time` is up.
pub(super) fn check(processes: &Processes, time: Duration) -> Check {
    let until = Instant::now() + time;
    let mut survey = Survey::default();
    let mut checked = HashSet::new();
    for process in &processes.seen {
        for file in &process.files {
            if !checked.insert(file.file) {
                continue;
            }
            if Instant::now() >= until {
                survey.not_looked_at += 1;
                continue;
            }
            let path = || file.path.to_string_lossy().into_owned();
            match file.open(&process.directory) {
                Err(_) => survey.unreadable.push(path()),
                Ok(opened) => match unwinding(&opened) {
                    Some(Unwinding::ProcessDescription) => survey.described += 1,
                    Some(Unwinding::Undescribed) => survey.undescribed.push(path()),
                    // A data file or another format, mapped as executable.
                    None => {}
                },
            }
        }
    }
    survey.check(processes.seen.len(), processes.refused)
}

impl Survey {
    fn check(&self, processes: usize, refused: usize) -> Check {
        let looked_at = self.described + self.undescribed.len() + self.unreadable.len();
        let share = match looked_at {
            0 => 100,
            _ => self.described * 100 / looked_at,
        };
        let mut found = format!(
            "{} of {looked_at} executables and libraries of {processes} processes have unwind information ({share} %)",
            self.described
        );
        if !self.undescribed.is_empty() {
            let by = match cfg!(target_arch = "x86_64") {
                true => "instruction analysis",
                false => "frame pointers",
            };
            found += &format!("; {} are unwound by {by}", named(&self.undescribed));
        }
        if !self.unreadable.is_empty() {
            found += &format!("; {} cannot be opened", named(&self.unreadable));
        }
        if refused > 0 {
            found += &format!("; processes that cannot be inspected: {refused}");
        }
        if self.not_looked_at > 0 {
            found += &format!("; skipped for lack of time: {}", self.not_looked_at);
        }
        let check = Check::new(NAME, found);
        let is_blind =
            refused * 10 > processes || !self.unreadable.is_empty() && share < WARN_BELOW_PERCENT;
        if is_blind {
            return check.warn(
                "stacks in them are truncated",
                "run it as root, or with CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH and CAP_CHECKPOINT_RESTORE",
            );
        }
        match share < WARN_BELOW_PERCENT {
            false => check,
            true => check.warn(
                "some stacks through them are truncated",
                "build them with -fasynchronous-unwind-tables, or with -fno-omit-frame-pointer, and do not strip .eh_frame",
            ),
        }
    }
}

fn named(paths: &[String]) -> String {
    let shown: Vec<&str> = paths.iter().take(SHOWN).map(String::as_str).collect();
    let shown = shown.join(", ");
    match paths.len() {
        0..=SHOWN => format!("{} ({shown})", paths.len()),
        count => format!("{count} ({shown}, …)"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Host;
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn this_test_can_be_unwound() {
        let check = check(&Processes::read(Path::new("/proc")), LONG);
        let described: usize = check.found.split(' ').next().unwrap().parse().unwrap();
        assert!(described > 0, "{check:?}");
    }

    #[test]
    fn files_that_cannot_be_opened_are_listed() {
        let host = Host::new().with_process(3, "a", &["/a", "/b"]);
        let found = check(&host.processes(), LONG);
        assert!(found.found.contains("0 of 2"), "{found:?}");
        assert!(
            found.found.contains("2 (/a, /b) cannot be opened"),
            "{found:?}"
        );
        assert!(found.problem.unwrap().fix.contains("CAP_SYS_PTRACE"));
    }

    #[test]
    fn text_files_are_ignored_and_files_without_tables_are_listed() {
        let host = Host::new()
            .with_process(3, "a", &["/text"])
            .with("3/map_files/0-fff", "not an executable");
        let found = check(&host.processes(), LONG);
        assert!(found.found.starts_with("0 of 0"), "{found:?}");
        assert_eq!(found.problem, None);
        let survey = Survey {
            described: 3,
            undescribed: (0..4).map(|it| format!("/{it}")).collect(),
            ..Survey::default()
        };
        assert_eq!(Survey::default().check(20, 2).problem, None);
        let refused = Survey::default().check(20, 3).problem.unwrap();
        assert!(refused.fix.contains("CAP_SYS_PTRACE"), "{refused:?}");
        let found = survey.check(2, 0);
        assert!(found.found.contains("3 of 7") && found.found.contains("4 (/0, /1, /2, …)"));
        assert!(found.problem.unwrap().fix.contains(".eh_frame"));
    }

    #[test]
    fn stops_when_the_time_is_up() {
        let host = Host::new().with_process(3, "a", &["/a", "/b"]);
        let found = check(&host.processes(), Duration::ZERO);
        assert!(
            found.found.ends_with("skipped for lack of time: 2"),
            "{found:?}"
        );
    }
}
