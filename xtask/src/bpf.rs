//! Builds the BPF programs of `ebpf/programs` into the objects committed in `ebpf/objects`, so that `cargo build` needs
//! no BPF toolchain. Builds are reproducible in any directory, so that a check build can verify that the committed
//! objects match the committed sources.
//!
//! The bytes depend on the compiler, so its version is pinned; docs/testing.md lists the Debian packages.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::process;
use crate::report::Report;
use crate::workspace::Workspace;

const MANIFEST: &str = "ebpf/Cargo.toml";
const OBJECTS: &str = "ebpf/objects";
const TARGET: &str = "bpfel-unknown-none";

/// The release and its LLVM version as printed by `-vV`: the linker reads and optimizes the compiler's bitcode.
const RUSTC: &str = "1.96.0";
const LLVM: &str = "22";
const CORE_SOURCES: &str = "/usr/src/rustc-1.96.0/library/core";
const LLVM_DIRECTORY: &str = "/usr/lib/llvm-22";
const LINKER: &str = "bpf-linker";
const LINKER_VERSION: &str = "0.13.0";

const FLAGS: [&str; 4] = [
    // Supported by Linux 5.10 and later.
    "-Ctarget-cpu=v3",
    // BTF: the kernel verifies a global function separately, and once, only if it knows its argument types.
    "-Clink-arg=--btf",
    "-Cdebuginfo=full",
    "-Dwarnings",
];

/// One of the objects built from the sources.
struct Object {
    name: &'static str,
    /// Sample registers are those of the target machine, not of the build machine.
    machine: &'static str,
    features: &'static str,
}

/// Kernels without arenas need the blocks variant.
const ALL: [Object; 4] = [
    Object {
        name: "x86_64.o",
        machine: "x86_64",
        features: "",
    },
    Object {
        name: "x86_64-blocks.o",
        machine: "x86_64",
        features: "blocks",
    },
    Object {
        name: "aarch64.o",
        machine: "aarch64",
        features: "",
    },
    Object {
        name: "aarch64-blocks.o",
        machine: "aarch64",
        features: "blocks",
    },
];

/// `cargo xtask bpf`.
pub fn write(workspace: &Workspace, report: &mut Report) -> Result<()> {
    let Some(toolchain) = Toolchain::find(workspace, report)? else {
        return Ok(());
    };
    for object in &ALL {
        let built = toolchain.build(workspace, object)?;
        let committed = workspace.root.join(OBJECTS).join(object.name);
        fs::copy(&built, &committed)
            .with_context(|| format!("failed to write {}", committed.display()))?;
        println!("{OBJECTS}/{}", object.name);
    }
    Ok(())
}

/// Lints, and checks that the committed objects match the sources.
pub fn check(workspace: &Workspace, report: &mut Report) -> Result<()> {
    let Some(toolchain) = Toolchain::find(workspace, report)? else {
        return Ok(());
    };
    let read =
        |path: &Path| fs::read(path).with_context(|| format!("failed to read {}", path.display()));
    for object in &ALL {
        toolchain.clippy(workspace, object)?;
        let built = toolchain.build(workspace, object)?;
        if read(&built)? != read(&workspace.root.join(OBJECTS).join(object.name))? {
            bail!(
                "{OBJECTS}/{} does not match its sources ({}); run `cargo xtask bpf` and commit the object",
                object.name,
                built.display()
            );
        }
    }
    Ok(())
}

struct Toolchain {
    rustc: PathBuf,
    clippy: PathBuf,
    strip: PathBuf,
    linker: PathBuf,
}

impl Toolchain {
    /// Finds the toolchain, and builds the linker if only that is missing. If anything else is missing, reports each
    /// and returns `None`.
    fn find(workspace: &Workspace, report: &mut Report) -> Result<Option<Self>> {
        let tools = workspace.target.join("tools");
        let toolchain = Self {
            rustc: ["rustc", "/usr/bin/rustc"]
                .into_iter()
                .find(|rustc| is_the_compiler(rustc))
                .unwrap_or_default()
                .into(),
            clippy: "/usr/bin/clippy-driver".into(),
            strip: Path::new(LLVM_DIRECTORY).join("bin/llvm-strip"),
            linker: tools.join("bin").join(LINKER),
        };
        let has_linker = is_version(&toolchain.linker, LINKER_VERSION);
        let mut complete = true;
        let mut need = |there: bool, what: &str, packages: &str| {
            if !there {
                let why = format!("{what} not found; on Debian `apt-get install {packages}`");
                report.skip("the BPF programs", &why);
                complete = false;
            }
        };
        need(
            !toolchain.rustc.as_os_str().is_empty(),
            &format!("rustc {RUSTC} on LLVM {LLVM} with the core library of {TARGET}"),
            "rustc-web libstd-rust-web-dev-bpf",
        );
        // The line information includes core library sources if they are installed.
        need(
            Path::new(CORE_SOURCES).is_dir(),
            &format!("sources of the core library in {CORE_SOURCES}"),
            "rust-web-src",
        );
        need(
            is_version(&toolchain.clippy, ""),
            "clippy of that compiler",
            "rust-web-clippy",
        );
        need(
            is_version(&toolchain.strip, ""),
            &format!("llvm-strip in {LLVM_DIRECTORY}"),
            "llvm-22",
        );
        need(
            has_linker || Path::new(LLVM_DIRECTORY).join("include/llvm-c").is_dir(),
            &format!("{LINKER} {LINKER_VERSION}, nor the LLVM {LLVM} to build it with"),
            "llvm-22-dev libpolly-22-dev zlib1g-dev libzstd-dev",
        );
        if !complete {
            return Ok(None);
        }
        if !has_linker {
            install_linker(workspace, &tools)?;
        }
        Ok(Some(toolchain))
    }

    fn clippy(&self, workspace: &Workspace, object: &Object) -> Result<()> {
        process::run(
            self.cargo(workspace, "check", object)?
                .env("RUSTC_WORKSPACE_WRAPPER", &self.clippy),
        )
    }

    /// Returns the path of the object.
    fn build(&self, workspace: &Workspace, object: &Object) -> Result<PathBuf> {
        process::run(&mut self.cargo(workspace, "build", object)?)?;
        let target = workspace.target.join("bpf");
        let built = target.join(object.name);
        // Keep only the debug information read by the kernel: BTF types and lines, in separate sections.
        process::run(
            Command::new(&self.strip)
                .arg("--strip-debug")
                .arg(target.join(TARGET).join("release/profcol"))
                .arg("-o")
                .arg(&built),
        )?;
        Ok(built)
    }

    fn cargo(&self, workspace: &Workspace, command: &str, object: &Object) -> Result<Command> {
        let mut flags: Vec<String> = FLAGS.iter().map(|&flag| flag.to_owned()).collect();
        flags.push(format!("--cfg=bpf_target_arch=\"{}\"", object.machine));
        flags.extend(remapped_paths(workspace)?);
        let flags = serde_json::to_string(&flags).context("failed to serialize the flags")?;
        let mut cargo = workspace.cargo(&[command, "--quiet", "--release", "--locked"]);
        cargo
            .args(["--manifest-path", MANIFEST, "--target", TARGET])
            .args(["--features", object.features])
            .arg("--target-dir")
            .arg(workspace.target.join("bpf"))
            .arg("--config")
            .arg(format!("target.{TARGET}.rustflags={flags}"))
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .env_remove("RUSTC_WORKSPACE_WRAPPER")
            .env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", &self.linker)
            .env("RUSTC", &self.rustc)
            // Inline assembly for BPF is unstable.
            .env("RUSTC_BOOTSTRAP", "1");
        Ok(cargo)
    }
}

/// Flags that remap local paths in the line information to machine-independent ones.
fn remapped_paths(workspace: &Workspace) -> Result<Vec<String>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    #[derive(Deserialize)]
    struct Package {
        manifest_path: PathBuf,
        /// `None` for crates of this repository.
        source: Option<String>,
    }
    let arguments = [
        "metadata",
        "--format-version=1",
        "--locked",
        "--manifest-path",
        MANIFEST,
    ];
    let text = process::output(&mut workspace.cargo(&arguments))?;
    let metadata: Metadata =
        serde_json::from_str(&text).context("failed to parse the output of `cargo metadata`")?;
    let registries: BTreeSet<&Path> = metadata
        .packages
        .iter()
        .filter(|package| package.source.is_some())
        .filter_map(|package| package.manifest_path.parent()?.parent())
        .collect();
    // The last match wins, and cargo's home may be inside the clone.
    let mut directories = vec![(workspace.root.as_path(), "/profcol")];
    directories.extend(
        registries
            .into_iter()
            .map(|directory| (directory, "/crates")),
    );
    let flag = |(directory, name): (&Path, _)| {
        format!("--remap-path-prefix={}={name}", directory.display())
    };
    Ok(directories.into_iter().map(flag).collect())
}

/// Whether this is the pinned release and can compile for BPF.
fn is_the_compiler(rustc: &str) -> bool {
    let version = process::output(Command::new(rustc).arg("-vV")).unwrap_or_default();
    let has = |key: &str, value: &str| {
        version
            .lines()
            .filter_map(|line| line.strip_prefix(key))
            .any(|line| line.trim().starts_with(value))
    };
    has("release:", RUSTC) && has("LLVM version:", LLVM) && process::has_target(rustc, TARGET)
}

fn is_version(program: &Path, version: &str) -> bool {
    process::output(Command::new(program).arg("--version")).is_ok_and(|line| line.contains(version))
}

fn install_linker(workspace: &Workspace, tools: &Path) -> Result<()> {
    let install = [
        "install",
        "--quiet",
        // LLVM does the work, and is linked as it is.
        "--debug",
        "--locked",
        "--no-default-features",
        "--features",
        "llvm-22",
        LINKER,
        "--version",
        LINKER_VERSION,
        "--force",
        "--root",
    ];
    process::run(
        workspace
            .cargo(&install)
            .arg(tools)
            .env_remove("RUSTC_WORKSPACE_WRAPPER")
            .env("LLVM_PREFIX", LLVM_DIRECTORY),
    )
}
