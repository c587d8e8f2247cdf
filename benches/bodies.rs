//! Recorded export requests, the same for every contestant.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use bytes::{Buf, Bytes};
use clap::ValueEnum;
use prost::{DecodeError, Message};

/// Request size in samples: 100, 1,000 or 10,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Class {
    Small,
    Medium,
    Large,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Small => "small",
            Self::Medium => "medium",
            Self::Large => "large",
        })
    }
}

/// All bodies of a class (the files `<class>-NN.pb`), sorted by name.
pub fn load(class: Class) -> Result<Vec<Bytes>> {
    let directory = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/golden/otlp/generated"
    ));
    let mut paths = Vec::new();
    let entries = fs::read_dir(directory)
        .with_context(|| format!("failed to list the bodies in {}", directory.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(&format!("{class}-")) && name.ends_with(".pb") {
            paths.push(path);
        }
    }
    paths.sort();
    ensure!(
        !paths.is_empty(),
        "no {class} bodies in {}",
        directory.display()
    );
    paths
        .iter()
        .map(|path| {
            Ok(fs::read(path)
                .with_context(|| format!("failed to read {}", path.display()))?
                .into())
        })
        .collect()
}

/// Counts the samples of an export request. Decodes as little as possible, because it runs while the programs are measured.
pub fn count_samples(request: impl Buf) -> Result<u64, DecodeError> {
    let request = Request::decode(request)?;
    let profiles = request
        .resource_profiles
        .iter()
        .flat_map(|resource| &resource.scope_profiles)
        .flat_map(|scope| &scope.profiles);
    Ok(profiles.map(|profile| profile.samples.len() as u64).sum())
}

// Only the path to the samples is declared; other fields are skipped as unknown.

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(message, repeated, tag = "1")]
    resource_profiles: Vec<ResourceProfiles>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceProfiles {
    #[prost(message, repeated, tag = "2")]
    scope_profiles: Vec<ScopeProfiles>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeProfiles {
    #[prost(message, repeated, tag = "2")]
    profiles: Vec<Profile>,
}

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(bytes = "bytes", repeated, tag = "2")]
    samples: Vec<Bytes>,
}
