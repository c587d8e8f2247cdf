//! `cargo xtask soak`: the release build for hours, under load and faults (`tests/soak.rs`).

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;
use crate::{process, test};

pub fn run(workspace: &Workspace, options: &[&str]) -> Result<()> {
    let minutes: u32 = match options {
        [] => 120,
        ["--minutes", minutes] => minutes.parse().context("--minutes takes a number")?,
        _ => bail!("usage: cargo xtask soak [--minutes N]"),
    };
    process::run(&mut workspace.cargo(&["build", "--quiet", "--release", "--package=profcol"]))?;
    process::run(
        test::ignored(workspace, "soak")
            .arg("--nocapture")
            .env("PROFCOL_SOAK_MINUTES", minutes.to_string())
            .env(
                "PROFCOL_TEST_PROGRAM",
                workspace.target.join("release/profcol"),
            ),
    )
}
