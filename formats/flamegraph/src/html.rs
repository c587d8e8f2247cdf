//! The viewer and a profile in a single HTML file.

use profcol_printable::markup;
use serde::Serialize;

use crate::viewer;

/// `document` is the viewer's input: a [`Document`](crate::Document).
pub fn html(document: &impl Serialize, title: &str) -> String {
    let data = serde_json::to_string(document).unwrap_or_default();
    // The data cannot close the element that contains it.
    let data = data.replace('<', "\\u003c");
    let title = markup(title);
    viewer::standalone(&title, &data)
}
