//! Assigns resources to files.

use std::collections::BTreeMap;
use std::path::PathBuf;

use profcol_profile::{Profiles, Resource};

use super::config::FileConfig;

#[derive(Clone, Debug)]
pub(super) enum Layout {
    Single(PathBuf),
    Grouped(Groups),
}

/// One file for each value of an attribute.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    attribute: String,
    prefix: String,
    suffix: String,
}

/// The parts of a batch, by file.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) parts: Vec<(PathBuf, Profiles)>,
    /// Resources without a file.
    pub(super) dropped: Dropped,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Dropped {
    pub(super) profiles: u64,
    pub(super) samples: u64,
}

impl Layout {
    pub(super) fn new(config: &FileConfig) -> Self {
        match (config.grouping(), config.path.split_once('*')) {
            (Some(group_by), Some((prefix, suffix))) => {
                Self::Grouped(Groups::new(&group_by.resource_attribute, prefix, suffix))
            }
            _ => Self::Single(PathBuf::from(&config.path)),
        }
    }

    pub(super) fn divide(&self, profiles: &Profiles) -> Parts {
        match self {
            Self::Single(path) => Parts {
                parts: vec![(path.clone(), profiles.clone())],
                ..Parts::default()
            },
            Self::Grouped(groups) => groups.divide(profiles),
        }
    }
}

impl Groups {
    pub(super) fn new(attribute: &str, prefix: &str, suffix: &str) -> Self {
        let mut cleaned = clean(prefix);
        if prefix.ends_with('/') && !cleaned.ends_with('/') {
            cleaned.push('/');
        }
        Self {
            attribute: attribute.to_owned(),
            prefix: cleaned,
            suffix: suffix.to_owned(),
        }
    }

    fn divide(&self, profiles: &Profiles) -> Parts {
        let mut by_path: BTreeMap<PathBuf, Vec<usize>> = BTreeMap::new();
        let mut ungrouped = Vec::new();
        for (position, resource) in profiles.resources().iter().enumerate() {
            match self.segment(resource) {
                Some(segment) => by_path
                    .entry(self.path(segment))
                    .or_default()
                    .push(position),
                None => ungrouped.push(position),
            }
        }
        let mut dropped = Dropped::default();
        if !ungrouped.is_empty() {
            dropped.add(&profiles.part(&ungrouped));
        }
        let parts = profiles.parts(by_path.values().map(Vec::as_slice));
        Parts {
            parts: by_path.into_keys().zip(parts).collect(),
            dropped,
        }
    }

    fn segment<'a>(&self, resource: &'a Resource) -> Option<&'a str> {
        let attributes = &resource.attributes;
        let found = attributes
            .iter()
            .find(|entry| *entry.key == *self.attribute)?;
        found.value.as_str()
    }

    /// The path starts with the prefix, whatever the segment contains.
    pub(super) fn path(&self, segment: &str) -> PathBuf {
        let segment = match segment {
            segment if segment.starts_with("./") => &segment[1..],
            segment if segment.starts_with("../") => &segment[2..],
            segment => segment,
        };
        let (prefix, suffix) = (&self.prefix, &self.suffix);
        let path = clean(&format!("{prefix}{segment}{suffix}"));
        if path.starts_with(prefix.as_str()) {
            return PathBuf::from(path);
        }
        PathBuf::from(format!("{prefix}{}", clean(&format!("/{segment}{suffix}"))))
    }
}

impl Dropped {
    pub(super) fn add(&mut self, profiles: &Profiles) {
        self.profiles += profiles.profile_count() as u64;
        self.samples += profiles.sample_count() as u64;
    }
}

/// The shortest equivalent path, lexically.
fn clean(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => match parts.last() {
                Some(&last) if last != ".." => {
                    parts.pop();
                }
                _ if rooted => {}
                _ => parts.push(".."),
            },
            part => parts.push(part),
        }
    }
    let root = if rooted { "/" } else { "" };
    match parts.join("/") {
        path if path.is_empty() && !rooted => ".".to_owned(),
        path => format!("{root}{path}"),
    }
}
