//! The release binary: linked statically with musl, link-time optimized, stripped.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::Arch;
use crate::process;
use crate::workspace::Workspace;

pub fn target(arch: Arch) -> String {
    format!("{}-unknown-linux-musl", arch.name)
}

pub fn build(workspace: &Workspace, arch: Arch) -> Result<PathBuf> {
    let target = target(arch);
    if !process::has_target("rustc", &target) {
        bail!("rustc has no standard library for {target}; `rustup target add {target}`");
    }
    // A separate target directory, which can be deleted independently.
    let directory = workspace.target.join("dist");
    fs::create_dir_all(&directory).context("failed to create the build directory")?;
    let in_capitals = target.replace('-', "_").to_uppercase();
    let mut flags = remapped(workspace)?;
    let mut cargo = workspace.cargo(&["build", "--locked", "--quiet", "--profile", "dist"]);
    cargo.args(["--bin", "profcol", "--target", &target, "--target-dir"]);
    cargo.arg(&directory);
    let compiler = match Arch::of_host() == Some(arch) {
        true => native_compiler()?,
        false => {
            // Use the toolchain's linker and musl: the C compiler's would link different startup code.
            flags.extend(["-Clinker=rust-lld", "-Clinker-flavor=ld.lld"].map(str::to_owned));
            cross_compiler(&directory, arch)?
        }
    };
    cargo
        .env(format!("CC_{}", target.replace('-', "_")), compiler)
        .env(
            format!("CARGO_TARGET_{in_capitals}_RUSTFLAGS"),
            flags.join(" "),
        );
    process::run(&mut cargo)?;
    Ok(directory.join(&target).join("dist/profcol"))
}

/// Remaps local paths, which would leak into the binary and make builds irreproducible.
fn remapped(workspace: &Workspace) -> Result<Vec<String>> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let sources = home.context("HOME is not set")?.join("registry/src");
    let mut flags = Vec::new();
    for registry in super::sorted(&sources)? {
        flags.push(format!("--remap-path-prefix={}=/cargo", registry.display()));
    }
    let root = workspace.root.display();
    flags.push(format!("--remap-path-prefix={root}=/profcol"));
    Ok(flags)
}

fn native_compiler() -> Result<PathBuf> {
    match process::succeeds(Command::new("musl-gcc").arg("--version")) {
        true => Ok(PathBuf::from("musl-gcc")),
        false => bail!("`musl-gcc` not found; on Debian `apt-get install musl-tools`"),
    }
}

/// Zig includes musl headers for every architecture.
fn cross_compiler(directory: &Path, arch: Arch) -> Result<PathBuf> {
    if !process::succeeds(Command::new("zig").arg("version")) {
        bail!(
            "for {} a C compiler with musl is needed, and there is no `zig` here; \
             `pip install ziglang`, and put its directory into PATH",
            arch.name
        );
    }
    let wrapper = directory.join(format!("cc-{}", arch.name));
    // Zig uses a different target name than the one passed by cc.
    let script = format!(
        "#!/bin/sh\nfor word do\n  shift\n  case $word in --target=*) ;; *) set -- \"$@\" \"$word\" ;; esac\ndone\n\
         exec zig cc -target {}-linux-musl -fno-sanitize=all \"$@\"\n",
        arch.name
    );
    fs::write(&wrapper, script).context("failed to write the compiler wrapper")?;
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))
        .context("failed to make the compiler wrapper executable")?;
    Ok(wrapper)
}

/// Checks that the binary is static and contains no local paths.
pub fn check(binary: &Path) -> Result<()> {
    let headers = process::output(
        Command::new("readelf")
            .args(["--dynamic", "--program-headers", "--wide"])
            .arg(binary),
    )?;
    if headers.contains("(NEEDED)") || headers.contains("INTERP") {
        bail!("{} is not static:\n{headers}", binary.display());
    }
    let bytes = fs::read(binary).context("failed to read the binary")?;
    if let Some(home) = std::env::var_os("HOME").filter(|home| home.len() > 1) {
        let home = [home.as_encoded_bytes(), b"/"].concat();
        if bytes.windows(home.len()).any(|it| it == home) {
            bail!("{} contains local paths", binary.display());
        }
    }
    Ok(())
}
