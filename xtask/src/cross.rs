//! A build for aarch64, so that the other architecture does not rot between releases, and for the tests that run it
//! under qemu: linked statically, so that it needs no library there.
//!
//! rustup's own toolchain serves where the target was added to it. Else Debian's packages do, which put the standard
//! library of a second architecture beside the system's rustc. The C code of some dependencies needs a cross compiler.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::process;
use crate::report::Report;
use crate::workspace::Workspace;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const C_COMPILER: &str = "aarch64-linux-gnu-gcc";

/// What would only take time: nobody debugs it, and instructions of x86-64 are not looked at there.
const PROFILE: [&str; 4] = [
    "--config",
    "profile.dev.debug=false",
    "--config",
    "profile.dev.package.iced-x86.opt-level=0",
];

/// `cargo xtask cross`. Returns the binary; None where something is missing, with a line in the report.
pub fn build(workspace: &Workspace, report: &mut Report) -> Result<Option<PathBuf>> {
    let what = format!("the build for {TARGET}");
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
        return Ok(None);
    };
    if !process::succeeds(Command::new(C_COMPILER).arg("--version")) {
        report.skip(
            &what,
            &format!("no `{C_COMPILER}` here (package gcc-aarch64-linux-gnu)"),
        );
        return Ok(None);
    }
    // A folder of its own: the compiler may be another one, and would rebuild what the others left in `target`.
    let folder = workspace.target.join("cross");
    process::run(
        workspace
            .cargo(&["build", "--quiet", "--bin", "profcol", "--target", TARGET])
            .args(PROFILE)
            .arg("--target-dir")
            .arg(&folder)
            .env("RUSTC", rustc)
            .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", C_COMPILER)
            .env(
                "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS",
                "-Ctarget-feature=+crt-static",
            ),
    )?;
    Ok(Some(folder.join(TARGET).join("debug/profcol")))
}
