//! `cargo xtask gen` rewrites all generated files of the repository.
//!
//! There is no list of them. Each generated file has a test, in a module or function named `generated…`, that generates
//! the content and compares it with the file; with `UPDATE=1` it writes the file instead. So `cargo test` detects stale
//! files, and this command updates all of them. They are in two integration tests of the binary, which keeps this fast.

use anyhow::Result;

use crate::process;
use crate::workspace::Workspace;

pub fn run(workspace: &Workspace) -> Result<()> {
    process::run(
        workspace
            .cargo(&[
                "test",
                "--quiet",
                "--workspace",
                "--test",
                "generated",
                "--test",
                "cli",
                "generated",
            ])
            .env("UPDATE", "1"),
    )
}
