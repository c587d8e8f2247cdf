//! Configuration problems, collected so that one run reports all.

use std::fmt;

use profcol_printable::{indented, line};

use crate::node::{Node, Value};
use crate::sources::Location;

/// Problems beyond this are only counted: thousands of them mean it is the wrong file.
pub const MAX_PROBLEMS: usize = 100;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Problem {
    /// Path in the configuration, as in `exporters::otlp_grpc::timeout`; empty for the whole.
    pub path: Vec<String>,
    pub message: String,
    pub at: Option<Location>,
    /// The message itself names the last key of `path` and is about the enclosing section.
    pub names_key: bool,
    /// How to fix it.
    pub help: Option<String>,
    /// Related locations, each with a label.
    pub related: Vec<(Location, String)>,
}

impl Problem {
    pub fn new(message: impl Into<String>) -> Self {
        Problem {
            message: message.into(),
            ..Problem::default()
        }
    }

    #[must_use]
    pub fn at(mut self, at: Location) -> Self {
        self.at = Some(at);
        self
    }

    /// Sets the key to show, which the message names.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.path.push(key.into());
        self.names_key = true;
        self
    }

    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    #[must_use]
    pub fn related(mut self, at: Location, label: impl Into<String>) -> Self {
        self.related.push((at, label.into()));
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = match self.path.split_last() {
            Some((_, section)) if self.names_key => section,
            _ => &self.path,
        };
        if !path.is_empty() {
            write!(f, "{}: ", line(&path.join("::")))?;
        }
        f.write_str(&indented(&self.message))
    }
}

/// Collects problems under a current path, so that a component's `validate` names only its own fields.
///
/// ```
/// # use profcol_config::Problems;
/// let mut problems = Problems::default();
/// problems.nested("sending_queue", |p| p.add("num_consumers", "must be positive"));
/// assert_eq!(problems.to_string(), "sending_queue::num_consumers: must be positive");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Problems {
    found: Vec<Problem>,
    omitted: usize,
    scope: Vec<String>,
    secrets: Vec<Location>,
}

impl Problems {
    /// Adds a problem of `field` (which may be a path such as `tls::min_version`), or of the current path if `field` is
    /// empty.
    pub fn add(&mut self, field: &str, message: impl fmt::Display) {
        let mut problem = Problem::new(message.to_string());
        problem.path = segments(field).map(str::to_owned).collect();
        self.push(problem);
    }

    /// Adds a problem with its path relative to the current scope.
    pub fn push(&mut self, mut problem: Problem) {
        if self.found.len() >= MAX_PROBLEMS {
            self.omitted += 1;
            return;
        }
        problem.path.splice(0..0, self.scope.iter().cloned());
        self.found.push(problem);
    }

    /// Runs `check` with all reported paths prefixed by `scope` (a path, or empty).
    pub fn nested<R>(&mut self, scope: &str, check: impl FnOnce(&mut Problems) -> R) -> R {
        let outer = self.scope.len();
        self.scope.extend(segments(scope).map(str::to_owned));
        let result = check(self);
        self.scope.truncate(outer);
        result
    }

    /// Like [`nested`](Self::nested), for a key that may contain `::`.
    pub fn nested_key<R>(&mut self, key: &str, check: impl FnOnce(&mut Problems) -> R) -> R {
        self.scope.push(key.to_owned());
        let result = check(self);
        self.scope.pop();
        result
    }

    /// Adds the problems of another collector under the current scope.
    pub fn extend(&mut self, other: Problems) {
        self.secrets.extend(other.secrets);
        self.omitted += other.omitted;
        for problem in other.found {
            self.push(problem);
        }
    }

    /// Sets missing locations by looking up each problem's path in `root`, the whole configuration.
    pub fn locate(&mut self, root: &Node) {
        for problem in self.found.iter_mut().filter(|p| p.at.is_none()) {
            problem.at = Some(root.locate(problem.path.iter().map(String::as_str)));
        }
    }

    /// Adds the YAML error to each problem about text from a reference that is not valid YAML.
    pub fn explain(&mut self, broken: &[Problem]) {
        let start = |at: Location| (at.line, at.column) == (1, 1);
        for problem in &mut self.found {
            let Some(at) = problem.at.filter(|at| start(*at)) else {
                continue;
            };
            let same = |cause: &&Problem| cause.at.is_some_and(|cause| cause.source == at.source);
            if let Some((cause, location)) = broken.iter().find(same).and_then(|c| Some((c, c.at?)))
            {
                problem.related.push((location, cause.message.clone()));
                problem.help = problem.help.take().or_else(|| cause.help.clone());
            }
        }
    }

    /// Masks a value that belongs to no known option in reports: it may be a secret.
    pub fn mask(&mut self, node: &Node) {
        match &node.value {
            Value::Map(map) => map.values().for_each(|entry| self.mask(&entry.node)),
            Value::Seq(items) => items.iter().for_each(|item| self.mask(item)),
            Value::Null | Value::Bool(_) => {}
            _ => self.mask_source(node.at),
        }
    }

    /// Masks the text at this location in reports.
    pub(crate) fn mask_source(&mut self, at: Location) {
        self.secrets.push(at);
    }

    pub(crate) fn secrets(&self) -> &[Location] {
        &self.secrets
    }

    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Number of problems, including omitted ones.
    pub fn count(&self) -> usize {
        self.found.len() + self.omitted
    }

    pub(crate) fn omitted(&self) -> usize {
        self.omitted
    }

    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.found.iter()
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        let mut problems = Problems::default();
        problems.push(problem);
        problems
    }
}

/// One line per problem, without snippets.
impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.found.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        if self.omitted > 0 {
            write!(f, "\nand {} more", self.omitted)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split("::").filter(|segment| !segment.is_empty())
}
