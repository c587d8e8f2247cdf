//! Converts a runtime's description of a container to attributes.

use std::collections::BTreeMap;
use std::sync::Arc;

use profcol_profile::{Attributes, KeyValue, Value};
use regex::Regex;

use super::settings::whole;
use crate::image::Image;

/// Total size of a container's labels.
const MAX_LABELS: usize = 16 << 10;

/// Labels of Kubernetes runtimes on the containers of a pod.
const KUBERNETES: [(&str, &str); 4] = [
    ("io.kubernetes.pod.namespace", "k8s.namespace.name"),
    ("io.kubernetes.pod.name", "k8s.pod.name"),
    ("io.kubernetes.pod.uid", "k8s.pod.uid"),
    ("io.kubernetes.container.name", "k8s.container.name"),
];

#[derive(Debug, Default)]
pub struct ContainerDescription<'a> {
    pub id: &'a str,
    pub name: &'a str,
    /// `registry/name:tag`, `name@sha256:…`, or an id.
    pub image: &'a str,
    pub image_id: &'a str,
    pub runtime: &'static str,
    /// containerd's namespace.
    pub namespace: &'a str,
    pub labels: Vec<(&'a str, &'a str)>,
}

/// Which labels to keep.
#[derive(Debug)]
pub struct LabelFilter(Vec<Regex>);

impl LabelFilter {
    /// The configuration has already rejected invalid patterns.
    pub fn new(patterns: &[String]) -> Self {
        Self(patterns.iter().filter_map(|it| whole(it).ok()).collect())
    }

    fn matches(&self, key: &str) -> bool {
        self.0.iter().any(|pattern| pattern.is_match(key))
    }
}

impl<'a> ContainerDescription<'a> {
    pub fn pairs(labels: &'a BTreeMap<String, String>) -> Vec<(&'a str, &'a str)> {
        let pairs = labels.iter();
        pairs.map(|(key, value)| (&**key, &**value)).collect()
    }

    pub fn attributes(&self, labels: &LabelFilter) -> Arc<Attributes> {
        let mut attributes = Attributes::new();
        let mut add = |key: &str, value: &str| {
            if !value.is_empty() {
                attributes.push(KeyValue::new(key, value));
            }
        };
        let image = Image::parse(match has_name(self.image) {
            true => self.image,
            false => "",
        });
        add("container.id", self.id);
        add("container.name", self.name);
        add("container.runtime.name", self.runtime);
        add("container.image.name", image.name);
        add("container.image.id", self.image_id);
        add("containerd.namespace", self.namespace);
        for (label, attribute) in KUBERNETES {
            let value = self.labels.iter().find(|(key, _)| *key == label);
            add(attribute, value.map_or("", |(_, value)| value));
        }
        let list = |text: &str| Value::Array([Value::from(text)].into());
        if let Some(tag) = image.tag.filter(|tag| !tag.is_empty()) {
            attributes.push(KeyValue::new("container.image.tags", list(tag)));
        }
        if let Some(digest) = image.digest.filter(|digest| !digest.is_empty()) {
            let digest = format!("{}@{digest}", image.name);
            let digest = KeyValue::new("container.image.repo_digests", list(&digest));
            attributes.push(digest);
        }
        let mut room = MAX_LABELS;
        for (key, value) in &self.labels {
            let size = key.len() + value.len();
            if size <= room && !key.is_empty() && labels.matches(key) {
                room -= size;
                attributes.push(KeyValue::new(&format!("container.label.{key}"), *value));
            }
        }
        Arc::new(attributes)
    }
}

/// An image that lost its name is referred to by its id.
fn has_name(image: &str) -> bool {
    !image.starts_with("sha256:") && !profcol_processes::is_container_id(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_without_a_name() {
        for (image, expected) in [
            ("a/b:1", true),
            ("sha256:d56af991f7d0428be49b32614b7eddd2", false),
            (&"d5".repeat(32), false),
            ("", true),
        ] {
            assert_eq!(has_name(image), expected, "{image}");
        }
    }

    #[test]
    fn labels_are_filtered_and_limited() {
        let long = "x".repeat(MAX_LABELS);
        let described = ContainerDescription {
            labels: vec![
                ("team", "shop"),
                ("teams", "no"),
                ("app.x", &long),
                ("app.y", ""),
            ],
            ..ContainerDescription::default()
        };
        let labels = LabelFilter::new(&["team".to_owned(), r"app\..*".to_owned()]);
        let attributes = described.attributes(&labels);
        let keys: Vec<&str> = attributes.iter().map(|it| &*it.key).collect();
        assert_eq!(keys, ["container.label.team", "container.label.app.y"]);
    }
}
