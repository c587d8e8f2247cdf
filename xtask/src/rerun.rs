//! Runs failed tests once more, alone. On a machine whose CPUs others use, a test that waits for something may
//! run out of time; one that finds a defect fails again.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Result, bail};

use crate::process::{self, Ended};
use crate::report::Report;

/// When more fail, the cause is not the machine.
const MAX_TESTS: usize = 5;

/// Succeeds if all commands did, or if the tests that failed pass alone: `cargo_test` runs tests of the same targets by arguments
/// for their binaries. Each of them is reported.
pub fn failed(
    ended: Vec<Ended>,
    report: &mut Report,
    cargo_test: impl Fn(&[&str]) -> Command,
) -> Result<()> {
    let mut failed = BTreeSet::new();
    for ended in ended {
        let Err(error) = ended.result else { continue };
        match failed_tests(&ended.stdout) {
            Some(tests) => failed.extend(tests),
            None => return Err(error),
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = failed.iter().map(String::as_str).collect();
    if names.len() > MAX_TESTS {
        bail!("{} tests failed: {}", names.len(), names.join(", "));
    }
    println!(
        "\n{} test(s) failed, and run alone: {}",
        names.len(),
        names.join(", ")
    );
    let arguments = [&["--exact", "--test-threads", "1"], &names[..]].concat();
    let again = process::run_and_read(&mut cargo_test(&arguments));
    again.result?;
    for name in names {
        if !again
            .stdout
            .lines()
            .any(|line| line == format!("test {name} ... ok"))
        {
            bail!("{name} failed");
        }
        report.flaky(name);
    }
    Ok(())
}

/// The names of the tests that failed, unless something else failed too: a build, or a test that ended its process.
fn failed_tests(stdout: &str) -> Option<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let (mut failed, mut counted) = (0, 0);
    let (mut started, mut ended) = (0, 0);
    for line in stdout.lines() {
        if line.starts_with("running ") && line.trim_end_matches('s').ends_with(" test") {
            started += 1;
        }
        if let Some(test) = line
            .strip_prefix("test ")
            .and_then(|it| it.strip_suffix(" ... FAILED"))
        {
            names.insert(test.to_owned());
            failed += 1;
        }
        if let Some(result) = line.strip_prefix("test result: ") {
            ended += 1;
            let count = result
                .split("; ")
                .find_map(|it| it.strip_suffix(" failed"))?;
            counted += count.parse::<usize>().ok()?;
        }
    }
    (failed > 0 && failed == counted && started == ended).then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSED: &str =
        "running 1 test\ntest a::b ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored\n";
    const FAILED: &str = "running 2 tests\ntest a::b ... ok\ntest c ... FAILED\n\n\
        test result: FAILED. 1 passed; 1 failed; 0 ignored\n";

    #[test]
    fn finds_failed_tests() {
        assert_eq!(failed_tests(PASSED), None);
        let found = failed_tests(&format!("{PASSED}{FAILED}{PASSED}"));
        assert_eq!(found, Some(BTreeSet::from(["c".to_owned()])));
    }

    #[test]
    fn no_test_runs_again_beside_other_failures() {
        let ended_early = "running 1 test\n";
        assert_eq!(failed_tests(&format!("{ended_early}{FAILED}")), None);
        let garbled = "running 1 test\ntest d ... error: FAILED\n\ntest result: FAILED. 0 passed; 1 failed; 0 ignored\n";
        assert_eq!(failed_tests(&format!("{garbled}{FAILED}")), None);
    }

    /// What two commands printed; the second failed unless `stdout` is of tests that passed. Tests that run again are said to print
    /// `again`.
    fn run(stdout: &str, again: &str) -> Result<()> {
        let result = match stdout {
            PASSED => Ok(()),
            _ => Err(anyhow::anyhow!("exit status: 101")),
        };
        let stdout = stdout.to_owned();
        let commands = vec![
            Ended {
                stdout: PASSED.to_owned(),
                result: Ok(()),
            },
            Ended { stdout, result },
        ];
        let mut report = Report::from_environment();
        failed(commands, &mut report, |_| {
            let mut command = Command::new("printf");
            command.arg(again);
            command
        })
    }

    #[test]
    fn a_failed_test_has_to_pass_alone() {
        assert!(run(PASSED, "").is_ok());
        assert!(run(FAILED, "test c ... ok\n").is_ok());
        assert!(run(FAILED, "test other::c ... ok\n").is_err());
        assert!(run(FAILED, "test c ... ignored\n").is_err());
        assert!(run("", "test c ... ok\n").is_err());
    }

    #[test]
    fn many_failures_are_not_the_machine() {
        let failures = |count| -> String {
            (0..count)
                .map(|test| FAILED.replace("test c", &format!("test c{test}")))
                .collect()
        };
        let passed: String = (0..9)
            .map(|test| format!("test c{test} ... ok\n"))
            .collect();
        assert!(run(&failures(MAX_TESTS), &passed).is_ok());
        assert!(run(&failures(MAX_TESTS + 1), &passed).is_err());
    }
}
