//! `cargo xtask gen` rewrites every file of the repository that is made from another one.
//!
//! There is no list of them here. Each generated file has a test, in a module or function named `generated…`, that makes
//! the content and compares it with the file; with `UPDATE=1` it writes the file instead. So `cargo test` says that a
//! file is stale, and this says it to all of them at once. They stand in two of the binary's tests, which keeps this quick.

use anyhow::Result;

use crate::process;
use crate::workspace::Workspace;

pub fn run(workspace: &Workspace) -> Result<()> {
    process::run(
        workspace
            .cargo(&[
                "test",
                "--quiet",
                "--test",
                "generated",
                "--test",
                "cli",
                "generated",
            ])
            .env("UPDATE", "1"),
    )
}
