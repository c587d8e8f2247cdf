//! A Markdown file and its contents.

use std::fs;
use std::path::PathBuf;

use profcol_test_harness::support::root;

/// Directories of components.
pub const KINDS: [&str; 5] = [
    "receivers",
    "processors",
    "exporters",
    "connectors",
    "extensions",
];

pub struct Page {
    pub path: PathBuf,
    pub text: String,
}

/// The guides, whose commands are run.
pub fn guides() -> Vec<Page> {
    let mut pages = of_directory("docs/recipes");
    pages.extend(
        [
            "docs/concepts.md",
            "docs/quick-start.md",
            "docs/troubleshooting.md",
        ]
        .map(read),
    );
    assert!(pages.len() > 7, "{}", pages.len());
    pages
}

/// The guides, and the README.
pub fn guides_and_readme() -> Vec<Page> {
    let mut pages = guides();
    pages.push(read("README.md"));
    pages
}

/// Pages about hosts and clusters. Most of their commands change those, so only what they name is checked.
pub fn deployments() -> Vec<Page> {
    [
        "docs/install.md",
        "docs/security.md",
        "docs/reload.md",
        "docs/labels.md",
        "deploy/kubernetes/README.md",
        "deploy/helm/profcol/README.md",
        "deploy/systemd/README.md",
        "deploy/monitoring/README.md",
    ]
    .map(read)
    .into()
}

/// All pages whose links are checked.
pub fn all_pages() -> Vec<Page> {
    let mut pages = guides();
    pages.extend(["README.md", "CONTRIBUTING.md"].map(read));
    for directory in [
        "docs",
        "deploy/kubernetes",
        "deploy/helm/profcol",
        "deploy/systemd",
        "deploy/monitoring",
        "docs/decisions",
    ] {
        pages.extend(of_directory(directory));
    }
    for kind in KINDS {
        for entry in fs::read_dir(root().join("components").join(kind)).unwrap() {
            let path = entry.unwrap().path().join("README.md");
            if let Ok(text) = fs::read_to_string(&path) {
                pages.push(Page::new(path, text));
            }
        }
    }
    pages
}

fn read(path: &str) -> Page {
    let path = root().join(path);
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Page::new(path, text)
}

fn of_directory(directory: &str) -> Vec<Page> {
    let entries = fs::read_dir(root().join(directory)).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|it| it == "md"));
    paths.sort();
    let page = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        Page::new(path, text)
    };
    paths.into_iter().map(page).collect()
}

impl Page {
    pub fn new(path: PathBuf, text: String) -> Self {
        Self { path, text }
    }

    pub fn name(&self) -> String {
        let path = self.path.strip_prefix(root()).unwrap_or(&self.path);
        path.display().to_string()
    }

    /// The code blocks of this language, without their indentation.
    pub fn blocks(&self, language: &str) -> Vec<String> {
        let mut blocks = Vec::new();
        let mut lines = self.text.lines();
        while let Some(line) = lines.next() {
            let indent = line.len() - line.trim_start().len();
            if line.trim() != format!("```{language}") {
                continue;
            }
            let block = lines.by_ref().take_while(|it| it.trim() != "```");
            let block: Vec<&str> = block.map(|it| it.get(indent..).unwrap_or("")).collect();
            blocks.push(format!("\n{}\n", block.join("\n")));
        }
        blocks
    }

    /// The text without code blocks.
    fn prose(&self) -> String {
        let mut is_fenced = false;
        let mut prose = String::new();
        for line in self.text.lines() {
            if line.trim_start().starts_with("```") {
                is_fenced = !is_fenced;
            } else if !is_fenced {
                prose += line;
                prose += "\n";
            }
        }
        prose
    }

    /// The links into this repository.
    pub fn links(&self) -> Vec<String> {
        let prose = self.prose();
        let targets = prose
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split_once(')'));
        let targets = targets.map(|(target, _)| target.to_owned());
        targets
            .filter(|it| !it.contains("://") && !it.contains(' '))
            .collect()
    }

    /// GitHub's anchors of the headings.
    pub fn anchors(&self) -> impl Iterator<Item = String> {
        let prose = self.prose();
        let headings = prose.lines().filter_map(|line| line.strip_prefix('#'));
        let anchors: Vec<String> = headings
            .map(|heading| {
                let heading = heading.trim_start_matches('#').trim().to_lowercase();
                let kept = heading
                    .chars()
                    .filter(|it| it.is_alphanumeric() || " -_".contains(*it));
                kept.map(|it| if it == ' ' { '-' } else { it }).collect()
            })
            .collect();
        anchors.into_iter()
    }

    /// The text between backticks.
    pub fn codes(&self) -> Vec<String> {
        Self::codes_of(&self.prose())
    }

    pub fn codes_of(text: &str) -> Vec<String> {
        let parts = text.split('`').skip(1).step_by(2);
        parts.map(str::to_owned).collect()
    }
}

/// The text between double quotes.
pub fn quoted(line: &str) -> Vec<String> {
    let parts = line.split('"').skip(1).step_by(2);
    parts.map(str::to_owned).collect()
}
