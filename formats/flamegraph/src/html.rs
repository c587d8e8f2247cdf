//! The viewer and a profile in one file.

use serde::Serialize;

use crate::viewer;

/// `document` is what the viewer reads: a [`Document`](crate::Document).
pub fn html(document: &impl Serialize, title: &str) -> String {
    let data = serde_json::to_string(document).unwrap_or_default();
    // Nothing in the data can end the element in which it stands.
    let data = data.replace('<', "\\u003c");
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    viewer::standalone(&title, &data)
}
