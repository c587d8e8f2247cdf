//! The viewer's files, from `viewer/`.
//!
//! Browsers get the modules as one script: in dependency order, without imports, exports, indentation and comment
//! lines. profcol needs nothing else from a bundler, so the build has none. String literals in the modules must stay on
//! one line; a JS test checks that.

macro_rules! modules {
    ($($name:literal),* $(,)?) => {
        &[$(include_str!(concat!("../viewer/", $name))),*]
    };
}

/// Modules shared by the live page and the one-file page, each after its imports.
const SHARED: &[&str] = modules!(
    "format.js",
    "dom.js",
    "colors.js",
    "tints.js",
    "profile.js",
    "paths.js",
    "search.js",
    "layout.js",
    "details.js",
    "legend.js",
    "selection.js",
    "keys.js",
    "paint.js",
    "graphinput.js",
    "flamegraph.js",
    "table.js",
    "calltree.js",
    "sandwich.js",
    "url.js",
    "viewer.js",
);
const LIVE: &[&str] = modules!(
    "login.js",
    "api.js",
    "selector.js",
    "labelfilter.js",
    "timeline.js",
    "processes.js",
    "tap.js",
    "metrics.js",
    "pipelines.js",
    "page.js"
);
const STANDALONE: &[&str] = modules!("callers.js", "folded.js", "standalone.js");

/// The live page, which loads `/style.css` and `/page.js`.
pub const PAGE: &str = include_str!("../viewer/page.html");
pub const STYLE: &str = include_str!("../viewer/style.css");

const STANDALONE_PAGE: &str = include_str!("../viewer/standalone.html");

/// The script of the live page.
pub fn page_script() -> String {
    bundle(&[SHARED, LIVE])
}

/// A self-contained page; `title` is escaped for HTML, and `profile` is JSON without any `<`.
pub(crate) fn standalone(title: &str, profile: &str) -> String {
    // Fill in the profile last: it may contain text that looks like a placeholder.
    STANDALONE_PAGE
        .replacen("{{style}}", STYLE, 1)
        .replacen("{{script}}", &bundle(&[SHARED, STANDALONE]), 1)
        .replacen("{{title}}", title, 1)
        .replacen("{{profile}}", profile, 1)
}

fn bundle(groups: &[&[&str]]) -> String {
    let lines = groups
        .iter()
        .copied()
        .flatten()
        .flat_map(|module| module.lines())
        .map(str::trim);
    let lines = lines
        .filter(|line| !line.is_empty() && !line.starts_with("//") && !line.starts_with("import "));
    let mut script = String::new();
    for line in lines {
        script.push_str(line.strip_prefix("export ").unwrap_or(line));
        script.push('\n');
    }
    script
}
