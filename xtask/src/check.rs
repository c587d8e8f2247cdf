//! `cargo xtask check`: everything beside the tests that must hold, cheapest first.

use anyhow::{Result, bail};

use crate::report::Report;
use crate::workspace::Workspace;
use crate::{bpf, layers as direction, process, siblings, unused as dependencies};

pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    fmt(workspace)?;
    layers(workspace)?;
    unused(workspace)?;
    clippy(workspace)?;
    forwarder(workspace)?;
    fuzz_targets(workspace)?;
    bpf::check(workspace, report)
}

/// The program without default features. `cargo xtask features` tries all others.
fn forwarder(workspace: &Workspace) -> Result<()> {
    process::run(&mut workspace.cargo(&["check", "--no-default-features", "--package", "profcol"]))
}

/// That they compile; `cargo xtask nightly` runs them.
fn fuzz_targets(workspace: &Workspace) -> Result<()> {
    let check = ["check", "--manifest-path", "fuzz/Cargo.toml"];
    process::run(
        workspace
            .cargo(&check)
            .arg("--target-dir")
            .arg(&workspace.target),
    )
}

pub fn fmt(workspace: &Workspace) -> Result<()> {
    process::run(&mut workspace.cargo(&["fmt", "--all", "--check"]))?;
    for apart in ["fuzz/Cargo.toml", "ebpf/Cargo.toml"] {
        let fmt = ["fmt", "--manifest-path", apart, "--", "--check"];
        process::run(&mut workspace.cargo(&fmt))?;
    }
    Ok(())
}

pub fn clippy(workspace: &Workspace) -> Result<()> {
    process::run(&mut workspace.cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))
}

pub fn layers(workspace: &Workspace) -> Result<()> {
    println!("$ dependency direction, and no component that names a sibling");
    let mut problems = direction::violations(&direction::edges(workspace));
    problems.extend(siblings::violations(&workspace.root.join("components"))?);
    refuse(
        &problems,
        "violation(s) of the layout (docs/architecture.md says why it is so)",
    )
}

pub fn unused(workspace: &Workspace) -> Result<()> {
    println!("$ dependencies that nothing uses");
    let problems = dependencies::violations(workspace)?;
    refuse(
        &problems,
        "unused dependencies; what is needed for its features alone is listed in xtask/src/unused.rs",
    )
}

fn refuse(problems: &[String], what: &str) -> Result<()> {
    for problem in problems {
        println!("  {problem}");
    }
    if !problems.is_empty() {
        bail!("{} {what}", problems.len());
    }
    Ok(())
}
