//! `cargo xtask kubernetes-test`: tests profcol with a real Kubernetes API server (`tests/kubernetes`).
//!
//! The server is built from its published modules into `target/peers`; that takes too long for CI, which replays
//! recorded responses (`UPDATE=1` records them again).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::report::Report;
use crate::workspace::Workspace;
use crate::{helm, process, test};

const VERSION: &str = "34.4";

/// Modules that the server's repository replaces with local directories.
const STAGING: &str = "api apiextensions-apiserver apimachinery apiserver cli-runtime client-go cloud-provider \
    cluster-bootstrap code-generator component-base component-helpers controller-manager cri-api cri-client \
    csi-translation-lib dynamic-resource-allocation endpointslice externaljwt kube-aggregator \
    kube-controller-manager kube-proxy kube-scheduler kubectl kubelet metrics mount-utils \
    pod-security-admission sample-apiserver";

const MAIN: &str = "package main

import (
	\"os\"

	\"k8s.io/component-base/cli\"
	\"k8s.io/kubernetes/cmd/kube-apiserver/app\"
)

func main() { os.Exit(cli.Run(app.NewAPIServerCommand())) }
";

pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    for (program, package) in [
        ("go", "golang"),
        ("etcd", "etcd-server"),
        ("curl", "curl"),
        ("openssl", "openssl"),
    ] {
        if !process::succeeds(Command::new("which").arg(program)) {
            report.skip(
                "the tests with a Kubernetes API server",
                &format!("{program} not found (Debian: {package})"),
            );
            return Ok(());
        }
    }
    let server = build(&workspace.target.join("peers"))?;
    process::run(
        test::ignored(workspace, "kubernetes")
            .arg("--nocapture")
            .env("PROFCOL_KUBE_APISERVER", server)
            .env("PROFCOL_HELM", helm::program(workspace)?),
    )
}

/// Builds the server, unless it exists from the same recipe.
fn build(peers: &Path) -> Result<PathBuf> {
    let program = peers.join("kube-apiserver");
    let stamp = peers.join("kube-apiserver.stamp");
    let module = module();
    if program.exists() && fs::read_to_string(&stamp).is_ok_and(|made_from| made_from == module) {
        return Ok(program);
    }
    let directory = peers.join("kube-apiserver-build");
    fs::create_dir_all(&directory)
        .with_context(|| format!("failed to create {}", directory.display()))?;
    for (name, text) in [("go.mod", &*module), ("main.go", MAIN)] {
        fs::write(directory.join(name), text).with_context(|| format!("failed to write {name}"))?;
    }
    let go = |arguments: &[&str]| {
        process::run(Command::new("go").args(arguments).current_dir(&directory))
    };
    go(&["mod", "tidy"])?;
    go(&["build", "-ldflags=-s -w", "-o", "../kube-apiserver", "."])?;
    fs::write(&stamp, module).with_context(|| format!("failed to write {}", stamp.display()))?;
    Ok(program)
}

fn module() -> String {
    let replaced = STAGING
        .split_whitespace()
        .map(|name| format!("replace k8s.io/{name} => k8s.io/{name} v0.{VERSION}\n"));
    let replaced: String = replaced.collect();
    format!(
        "module profcol/kube-apiserver\n\ngo 1.24.0\n\n\
         require k8s.io/kubernetes v1.{VERSION}\nrequire k8s.io/component-base v0.{VERSION}\n\n{replaced}"
    )
}
