//! The container image: one layer with binary and certificates, as an OCI archive.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::files::{Files, archive, compressed};
use super::{PACKAGE, Release};
use crate::process;

/// Writes `profcol-0.1.0-linux-x86_64.oci.tar` into `directory`.
pub fn build(files: &Files, release: &Release, work: &Path, directory: &Path) -> Result<()> {
    let work = work.join("image");
    super::clear(&work)?;
    let staged = work.join("root");
    files.for_image()?.write(&staged)?;
    let layer = work.join("layer.tar");
    archive(&staged, ".", &layer, release)?;
    let layer = fs::read(&layer).context("failed to read the layer")?;

    let layout = Layout {
        directory: work.join("layout"),
    };
    fs::create_dir_all(layout.directory.join("blobs/sha256"))
        .context("failed to create the layout")?;
    let unpacked = digest(&layer, &work)?;
    let packed = layout.blob(&compressed(&layer)?, "layer.v1.tar+gzip", &work)?;
    let configuration = configuration(release, &unpacked)?;
    let configuration = layout.blob(configuration.as_bytes(), "config.v1+json", &work)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": configuration,
        "layers": [packed],
    });
    let mut manifest = layout.blob(manifest.to_string().as_bytes(), "manifest.v1+json", &work)?;
    manifest["platform"] = json!({"architecture": release.arch.debian, "os": "linux"});
    // The default tag on import.
    manifest["annotations"] = json!({"org.opencontainers.image.ref.name": release.version});
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    });
    for (name, document) in [
        ("index.json", index),
        ("oci-layout", json!({"imageLayoutVersion": "1.0.0"})),
    ] {
        fs::write(layout.directory.join(name), document.to_string())
            .with_context(|| format!("failed to write {name}"))?;
    }
    let target = directory.join(release.file_name("", ".oci.tar"));
    archive(&layout.directory, ".", &target, release)?;
    fs::remove_dir_all(work).context("failed to remove the staging directory")
}

/// Runs as root: profiling needs capabilities, which containers grant to root only. A gateway may run as any user.
fn configuration(release: &Release, layer: &str) -> Result<String> {
    let created = release.date("+%Y-%m-%dT%H:%M:%SZ")?;
    let labels = json!({
        "org.opencontainers.image.title": PACKAGE,
        "org.opencontainers.image.description": release.summary,
        "org.opencontainers.image.version": release.version,
        "org.opencontainers.image.revision": release.commit,
        "org.opencontainers.image.created": created,
        "org.opencontainers.image.licenses": "Apache-2.0 AND (Apache-2.0 OR GPL-2.0-only)",
    });
    let configuration = json!({
        "architecture": release.arch.debian,
        "os": "linux",
        "created": created,
        "config": {
            "Entrypoint": ["/usr/bin/profcol"],
            "Env": ["PATH=/usr/bin"],
            "WorkingDir": "/",
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": [layer]},
        "history": [{"created": created, "created_by": "cargo xtask dist"}],
    });
    Ok(configuration.to_string())
}

struct Layout {
    directory: std::path::PathBuf,
}

impl Layout {
    /// Writes a blob and returns its descriptor.
    fn blob(&self, content: &[u8], kind: &str, work: &Path) -> Result<Value> {
        let digest = digest(content, work)?;
        let name = digest.strip_prefix("sha256:").unwrap_or_default();
        fs::write(self.directory.join("blobs/sha256").join(name), content)
            .context("failed to write a blob")?;
        Ok(json!({
            "mediaType": format!("application/vnd.oci.image.{kind}"),
            "digest": digest,
            "size": content.len(),
        }))
    }
}

fn digest(content: &[u8], work: &Path) -> Result<String> {
    let file = work.join("summed");
    fs::write(&file, content).context("failed to write the checksum input")?;
    let sum = process::output(Command::new("sha256sum").arg("--").arg(&file))?;
    let sum = sum.split(' ').next().context("sha256sum printed nothing")?;
    Ok(format!("sha256:{sum}"))
}
