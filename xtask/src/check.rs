//! `cargo xtask check`: all checks except tests, cheapest first.

use anyhow::{Result, bail};

use crate::report::Report;
use crate::workspace::Workspace;
use crate::{
    bpf, circles, errors, globals, layers as direction, module_docs, process, protobuf as messages,
    siblings, unsafe_code, unused as dependencies,
};

pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    fmt(workspace)?;
    layers(workspace)?;
    unused(workspace)?;
    protobuf(workspace)?;
    clippy(workspace)?;
    forwarder(workspace)?;
    bpf::check(workspace, report)
}

/// The binary without default features. `cargo xtask features` covers the others.
fn forwarder(workspace: &Workspace) -> Result<()> {
    process::run(&mut workspace.cargo(&["check", "--no-default-features", "--package", "profcol"]))
}

pub fn fmt(workspace: &Workspace) -> Result<()> {
    process::run(&mut workspace.cargo(&["fmt", "--all", "--check"]))?;
    let bpf = ["fmt", "--manifest-path", "ebpf/Cargo.toml", "--", "--check"];
    process::run(&mut workspace.cargo(&bpf))
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
    println!(
        "$ dependency direction, circles of modules, unsafe code, global state, causes of errors, what each file is for, and no references between sibling components"
    );
    let mut problems = direction::violations(workspace)?;
    problems.extend(circles::violations(workspace)?);
    problems.extend(unsafe_code::violations(workspace)?);
    problems.extend(globals::violations(workspace)?);
    problems.extend(errors::violations(workspace)?);
    problems.extend(module_docs::violations(workspace)?);
    problems.extend(siblings::violations(&workspace.root.join("components"))?);
    problems.extend(siblings::ebpf_violations(&workspace.root)?);
    problems.extend(siblings::binary_violations(&workspace.root.join("src"))?);
    refuse(
        &problems,
        "layout violation(s) (see docs/architecture.md for the reasons)",
    )
}

pub fn unused(workspace: &Workspace) -> Result<()> {
    println!("$ unused dependencies");
    let problems = dependencies::violations(workspace)?;
    refuse(
        &problems,
        "unused dependencies; list those needed only for their features in xtask/src/unused.rs",
    )
}

pub fn protobuf(workspace: &Workspace) -> Result<()> {
    println!("$ protobuf messages as their projects define them");
    let problems = messages::violations(workspace)?;
    refuse(
        &problems,
        "difference(s) from the definitions (see tests/golden/README.md)",
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
