//! Licences, sources and bans of every dependency, by cargo-deny and `deny.toml`. Advisories are not checked: their
//! database must be fetched, so the same commit could pass today and fail tomorrow.

use anyhow::Result;

use crate::process;
use crate::workspace::Workspace;

const VERSION: &str = "0.20.2";

pub fn run(workspace: &Workspace) -> Result<()> {
    let checks = [
        "--workspace",
        "check",
        "--hide-inclusion-graph",
        "licenses",
        "sources",
        "bans",
    ];
    if process::succeeds(&mut workspace.cargo(&["deny", "--version"])) {
        return process::run(workspace.cargo(&["deny"]).args(checks));
    }
    // Installed into the target directory, so that a check changes nothing outside the clone.
    let tools = workspace.target.join("tools");
    let deny = tools.join("bin/cargo-deny");
    if !deny.exists() {
        let install = [
            "install",
            "--quiet",
            "--locked",
            "--debug",
            "cargo-deny",
            "--version",
            VERSION,
            "--root",
        ];
        process::run(workspace.cargo(&install).arg(&tools))?;
    }
    process::run(
        std::process::Command::new(deny)
            .args(checks)
            .current_dir(&workspace.root),
    )
}
