//! A check build for aarch64, so that the other architecture does not rot between releases.
//!
//! rustup's own toolchain serves where the target was added to it. Else Debian's packages do, which put the standard
//! library of a second architecture beside the system's rustc. The C code of some dependencies needs a cross compiler.

use std::process::Command;

use anyhow::Result;

use crate::process;
use crate::report::Report;
use crate::workspace::Workspace;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const C_COMPILER: &str = "aarch64-linux-gnu-gcc";

pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    let what = format!("the check build for {TARGET}");
    let Some(rustc) = ["rustc", "/usr/bin/rustc"]
        .into_iter()
        .find(|rustc| process::has_target(rustc, TARGET))
    else {
        report.skip(
            &what,
            &format!(
                "no rustc here has that target; `rustup target add {TARGET}`, or on Debian \
                 `dpkg --add-architecture arm64 && apt-get update && apt-get install rustc-web libstd-rust-web-dev:arm64`"
            ),
        );
        return Ok(());
    };
    if !process::succeeds(Command::new(C_COMPILER).arg("--version")) {
        report.skip(
            &what,
            &format!("no `{C_COMPILER}` here (package gcc-aarch64-linux-gnu)"),
        );
        return Ok(());
    }
    // A folder of its own: the compiler may be another one, and would rebuild what the others left in `target`.
    process::run(
        workspace
            .cargo(&["check", "--quiet", "--workspace", "--target", TARGET])
            .arg("--target-dir")
            .arg(workspace.target.join("cross"))
            .env("RUSTC", rustc),
    )
}
