//! Whole programs measured as users run them: the release build of profcol, looked at by a program of `benches/`.

use anyhow::{Result, bail};

use crate::process;
use crate::workspace::Workspace;

/// What can be measured; the rest of the command line is for the program that does it.
const SUBJECTS: [&str; 1] = ["ebpf"];

pub fn run(workspace: &Workspace, subject: &str, options: &[&str]) -> Result<()> {
    if !SUBJECTS.contains(&subject) {
        bail!(
            "no such bench: `{subject}` (there is {})",
            SUBJECTS.join(", ")
        );
    }
    process::run(&mut workspace.cargo(&["build", "--quiet", "--release", "--package=profcol"]))?;
    let run = [
        "run",
        "--quiet",
        "--release",
        "--package=profcol-benches",
        "--bin",
    ];
    process::run(workspace.cargo(&run).arg(subject).arg("--").args(options))
}
