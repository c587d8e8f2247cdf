//! Benchmarks of whole programs: the release build of profcol, measured by a program in `benches/`.

use anyhow::{Result, bail};

use crate::process;
use crate::workspace::Workspace;

/// Benchmarks; the remaining arguments are passed to their program.
const SUBJECTS: [&str; 1] = ["ebpf"];

pub fn run(workspace: &Workspace, subject: &str, options: &[&str]) -> Result<()> {
    if !SUBJECTS.contains(&subject) {
        bail!(
            "unknown bench `{subject}` (available: {})",
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
