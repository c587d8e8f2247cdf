//! Recognizes the processes of profcol itself: the agent, and the readers that it starts.

use std::fs;
use std::process;
use std::sync::LazyLock;

/// The agent starts a supervisor, and this one the readers.
const MAX_GENERATIONS: usize = 2;

static EXECUTABLE_NAME: LazyLock<Option<String>> = LazyLock::new(|| {
    let path = std::env::current_exe().ok()?;
    let name = path.file_name()?.to_str()?;
    // The kernel appends this after the executable was replaced.
    Some(name.strip_suffix(" (deleted)").unwrap_or(name).to_owned())
});

/// By its name, too: on another host the PID may belong to another process.
pub fn is_own(executable_name: Option<&str>, pid: Option<i64>, parent: Option<i64>) -> bool {
    if executable_name.is_none() || executable_name != EXECUTABLE_NAME.as_deref() {
        return false;
    }
    // A reader may have exited; its parent lives as long as the agent.
    let mut reported_parent = parent;
    let mut ancestor = pid;
    for _ in 0..=MAX_GENERATIONS {
        let Some(pid) = ancestor else {
            return false;
        };
        if pid == i64::from(process::id()) {
            return true;
        }
        ancestor = reported_parent.take().or_else(|| parent_of(pid));
    }
    false
}

fn parent_of(pid: i64) -> Option<i64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    parent.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn children_and_their_children_are_own() {
        let name = EXECUTABLE_NAME.as_deref();
        // The sleeping process ends by itself, should this test fail.
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 60 & echo $!; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let child = i64::from(shell.id());
        let mut line = String::new();
        let output = shell.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let grandchild: i64 = line.trim().parse().unwrap();

        assert!(is_own(name, Some(child), None));
        assert!(is_own(name, Some(grandchild), None));
        assert!(!is_own(Some("another"), Some(grandchild), None));
        assert!(!is_own(name, Some(1), None));
        assert!(!is_own(name, None, None));

        let mut kill = Command::new("kill");
        assert!(kill.arg(grandchild.to_string()).status().unwrap().success());
        shell.wait().unwrap();
        assert!(!is_own(name, Some(grandchild), None));
        assert!(is_own(name, Some(grandchild), Some(process::id().into())));
    }
}
