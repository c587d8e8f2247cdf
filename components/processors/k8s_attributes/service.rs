//! The name of a service by the conventions for Kubernetes: from the labels of its pod, the pod's controller
//! and the container.

use std::sync::Arc;

use profcol_kubernetes::Meta;

use super::objects::Pod;
use super::records::Controller;
use profcol_metadata::Image;

/// The first one present wins.
const NAMES: [&str; 2] = ["app.kubernetes.io/instance", "app.kubernetes.io/name"];
const VERSION: &str = "app.kubernetes.io/version";

pub(super) fn name_by_labels(meta: &Meta) -> Option<&str> {
    NAMES.iter().find_map(|label| filled(meta, label))
}

pub(super) fn version_by_labels(meta: &Meta) -> Option<&str> {
    filled(meta, VERSION)
}

/// The fallback without a label, a deployment or a cron job.
pub(super) fn name_at_last(pod: &Pod, controller: Option<&Controller>) -> Arc<str> {
    match controller {
        Some(controller) if controller.kind.is_some() => Arc::clone(&controller.name),
        _ => pod.metadata.name.as_str().into(),
    }
}

/// The version by the image; an image without tag and digest has none.
pub(super) fn version_by_image(image: &Image) -> Option<String> {
    match (image.tag, image.digest) {
        (Some(tag), Some(digest)) => Some(format!("{tag}@{digest}")),
        (tag, digest) => tag.or(digest).map(str::to_owned),
    }
}

pub(super) fn instance(pod: &Meta, container: &str) -> String {
    format!("{}.{}.{container}", pod.namespace, pod.name)
}

fn filled<'a>(meta: &'a Meta, label: &str) -> Option<&'a str> {
    let value = meta.labels.get(label)?;
    (!value.is_empty()).then_some(value)
}
