//! A build for aarch64, so that it does not rot between releases, and for tests under qemu: linked statically, so that
//! it needs no libraries there.
//!
//! Uses rustup's toolchain if the target is installed, else Debian's packages, which add a foreign standard library to
//! the system's rustc. The C code of some dependencies needs a cross compiler.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::process;
use crate::report::Report;
use crate::workspace::Workspace;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const C_COMPILER: &str = "aarch64-linux-gnu-gcc";

/// Profile overrides that save build time: no debug information, and no optimized iced-x86, as x86-64 code is not
/// decoded there.
const PROFILE: [&str; 4] = [
    "--config",
    "profile.dev.debug=false",
    "--config",
    "profile.dev.package.iced-x86.opt-level=0",
];

/// `cargo xtask cross`. Returns the binary; `None` if a tool is missing, which is reported.
pub fn build(workspace: &Workspace, report: &mut Report) -> Result<Option<PathBuf>> {
    let what = format!("the build for {TARGET}");
    let Some(rustc) = ["rustc", "/usr/bin/rustc"]
        .into_iter()
        .find(|rustc| process::has_target(rustc, TARGET))
    else {
        report.skip(
            &what,
            &format!(
                "no rustc with that target found; `rustup target add {TARGET}`, or on Debian \
                 `dpkg --add-architecture arm64 && apt-get update && apt-get install rustc-web libstd-rust-web-dev:arm64`"
            ),
        );
        return Ok(None);
    };
    if !process::succeeds(Command::new(C_COMPILER).arg("--version")) {
        report.skip(
            &what,
            &format!("`{C_COMPILER}` not found (package gcc-aarch64-linux-gnu)"),
        );
        return Ok(None);
    }
    // A separate target directory: the compiler may differ, and would invalidate other builds in `target`.
    let directory = workspace.target.join("cross");
    process::run(
        workspace
            .cargo(&["build", "--quiet", "--bin", "profcol", "--target", TARGET])
            .args(PROFILE)
            .arg("--target-dir")
            .arg(&directory)
            .env("RUSTC", rustc)
            .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", C_COMPILER)
            .env(
                "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS",
                "-Ctarget-feature=+crt-static",
            ),
    )?;
    Ok(Some(directory.join(TARGET).join("debug/profcol")))
}
