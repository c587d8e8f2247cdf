//! The Helm chart and the plain manifests, as archives. They do not depend on the architecture.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::files::{Files, archive, compressed, text};
use super::{PACKAGE, Release};

const CHART: &str = "deploy/helm/profcol";

/// The configurations of the manifests, which become ConfigMaps.
const CONFIGURATIONS: [&str; 3] = ["kubernetes-daemonset", "gateway", "sidecar"];

/// Writes `profcol-0.1.0.tgz` and `profcol-0.1.0-kubernetes.tar.gz` into `directory`.
pub fn build(root: &Path, release: &Release, work: &Path, directory: &Path) -> Result<()> {
    chart(root, release, work, directory)?;
    manifests(root, release, work, directory)
}

/// As `helm package` names and arranges it, but reproducible: Helm writes the times at which files were changed.
pub fn chart(root: &Path, release: &Release, work: &Path, directory: &Path) -> Result<PathBuf> {
    let version = format!("version: {}", release.version);
    let described = text(&root.join(CHART).join("Chart.yaml"))?;
    ensure!(
        described.lines().any(|line| line == version),
        "{CHART}/Chart.yaml: expected the line `{version}`"
    );
    let mut files = Files::default();
    files.add_directory(&root.join(CHART), PACKAGE)?;
    // The values of its tests.
    files.remove(&format!("{PACKAGE}/ci/"));
    let target = directory.join(format!("{PACKAGE}-{}.tgz", release.version));
    pack(&files, PACKAGE, release, work, &target)?;
    Ok(target)
}

/// In the directories of this repository, so that the same commands apply them.
fn manifests(root: &Path, release: &Release, work: &Path, directory: &Path) -> Result<()> {
    let name = format!("{PACKAGE}-{}-kubernetes", release.version);
    let mut files = Files::default();
    let place = format!("{name}/deploy/kubernetes");
    files.add_directory(&root.join("deploy/kubernetes"), &place)?;
    // Its links are into the repository.
    files.remove(&format!("{place}/README.md"));
    for configuration in CONFIGURATIONS {
        let place = format!("config-examples/{configuration}.yaml");
        let content = text(&root.join(&place))?;
        files.add(&format!("{name}/{place}"), 0o644, content);
    }
    let target = directory.join(format!("{name}.tar.gz"));
    pack(&files, &name, release, work, &target)
}

fn pack(files: &Files, top: &str, release: &Release, work: &Path, target: &Path) -> Result<()> {
    let work = work.join("kubernetes");
    super::clear(&work)?;
    let staged = work.join("staged");
    files.write(&staged)?;
    let tar = work.join("archive.tar");
    archive(&staged, top, &tar, release)?;
    let tar = fs::read(&tar).context("failed to read the archive")?;
    fs::write(target, compressed(&tar)?)
        .with_context(|| format!("failed to write {}", target.display()))?;
    fs::remove_dir_all(work).context("failed to remove the staging directory")
}
