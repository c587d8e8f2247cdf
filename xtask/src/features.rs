//! Builds each crate alone without default features, and with each of its features alone. Workspace builds unify
//! features and so hide a missing feature of a dependency. The tests are built without default features, too: apart, since
//! their own dependencies could hide one.

use anyhow::Result;

use crate::process;
use crate::workspace::Workspace;

pub fn run(workspace: &Workspace) -> Result<()> {
    for package in &workspace.packages {
        let base = [
            "check",
            "--quiet",
            "--no-default-features",
            "--package",
            &package.name,
        ];
        process::run(&mut workspace.cargo(&base))?;
        process::run(workspace.cargo(&base).arg("--tests"))?;
        for feature in package
            .features
            .keys()
            .filter(|feature| *feature != "default")
        {
            process::run(workspace.cargo(&base).args(["--features", feature]))?;
        }
    }
    Ok(())
}
