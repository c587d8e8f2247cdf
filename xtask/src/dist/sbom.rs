//! The SBOM of the binary in CycloneDX 1.5 JSON.
//!
//! Unlike `cargo cyclonedx`, which includes build and test dependencies, this lists only linked crates, has the
//! checksums of Cargo.lock, and is reproducible.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::dependencies::{Crate, Linked};
use super::{PACKAGE, Release};
use crate::process;

pub fn document(release: &Release, linked: &Linked) -> Result<String> {
    let rustc = process::output(std::process::Command::new("rustc").arg("--version"))?;
    let rustc = rustc.split(' ').nth(1).context("rustc has no version")?;
    let program = (PACKAGE.to_owned(), release.version.clone());
    let main = linked
        .get(&program)
        .context("the binary's crate is not listed")?;
    let others = linked.iter().filter(|(key, _)| **key != program);
    let mut components: Vec<_> = others
        .map(|(key, found)| component("library", key, found))
        .collect();
    components.push(json!({
        "type": "library",
        "bom-ref": format!("pkg:generic/rust-std@{rustc}"),
        "name": "rust-std",
        "version": rustc,
        "purl": format!("pkg:generic/rust-std@{rustc}"),
        "description": format!("Rust's standard library for {}-unknown-linux-musl, with musl", release.arch.name),
        "licenses": [{"expression": "MIT OR Apache-2.0"}],
    }));
    let dependencies = linked.iter().map(|(key, found)| {
        let needs: Vec<_> = found.needs.iter().map(purl).collect();
        json!({"ref": purl(key), "dependsOn": needs})
    });
    let document = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": release.date("+%Y-%m-%dT%H:%M:%SZ")?,
            "component": component("application", &program, main),
            "properties": [{"name": "profcol:commit", "value": release.commit}],
        },
        "components": components,
        "dependencies": dependencies.collect::<Vec<_>>(),
    });
    let mut text = serde_json::to_string_pretty(&document).context("failed to serialize JSON")?;
    text.push('\n');
    Ok(text)
}

fn component(kind: &str, key: &(String, String), found: &Crate) -> Value {
    let (name, version) = key;
    let mut component = json!({
        "type": kind,
        "bom-ref": purl(key),
        "name": name,
        "version": version,
        "purl": purl(key),
    });
    if let Some(license) = &found.license {
        // Older crates write `/` for `OR`.
        let expression = license.replace('/', " OR ");
        component["licenses"] = json!([{"expression": expression}]);
    }
    if let Some(checksum) = &found.checksum {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    if let Some(repository) = &found.repository {
        component["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
    }
    component
}

/// The package URL of a crate.
fn purl((name, version): &(String, String)) -> String {
    // Build metadata contains a plus, which would be decoded as a space.
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}
