//! Resolves `--config` and `--set` to one tree.
//!
//! Each source is a URI (`file:`, `env:`, `yaml:`, `http:`, `https:`, or a bare path). All are read and merged left to
//! right, then every `${…}` in a value is expanded. Source texts are kept, so that a problem in a variable's value
//! shows that value and the reference to it.

mod expand;
mod merge;
mod providers;
mod retrieve;
#[cfg(test)]
mod tests;

use crate::node::{Map, Node, Value};
use crate::problem::{Problem, Problems};
use crate::sources::{Location, Sources};

pub use providers::{ConfigProviders, ProviderError, SystemProviders, content_hash};
pub use retrieve::SCHEMES;

/// The configuration flags of the command line.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// The values of `--config`, in order.
    pub configs: Vec<String>,
    /// The values of `--set`, in order: `exporters.debug.verbosity=detailed`.
    pub sets: Vec<String>,
}

/// A configuration after reading, merging and expansion, before checking.
#[derive(Debug)]
pub struct Resolved {
    pub root: Node,
    pub sources: Sources,
    /// For the log.
    pub notes: Vec<Note>,
    /// YAML errors in the text of references, which is then treated as a plain string. Shown only where another type is
    /// expected: see [`Problems::explain`].
    pub broken: Vec<Problem>,
}

/// A notice or warning for the user.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    pub level: NoteLevel,
    pub message: String,
    pub at: Option<Location>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteLevel {
    Warning,
    Info,
}

/// Why a configuration could not be read. Displays the full report.
#[derive(Debug)]
pub struct Unresolved {
    pub problems: Problems,
    pub sources: Sources,
}

impl std::fmt::Display for Unresolved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.problems.report(&self.sources).fmt(f)
    }
}

impl std::error::Error for Unresolved {}

pub fn resolve(input: &Input, providers: &dyn ConfigProviders) -> Result<Resolved, Unresolved> {
    let mut reader = retrieve::Reader::new(providers);
    let mut problems = Problems::default();
    let mut root: Option<Node> = None;
    if input.configs.is_empty() {
        problems.push(
            Problem::new("at least one config flag must be provided")
                .help("pass a file with `--config gateway.yaml`"),
        );
    }
    let configs = input
        .configs
        .iter()
        .map(|uri| reader.config(uri))
        .collect::<Vec<_>>();
    let sets = input
        .sets
        .iter()
        .map(|set| reader.set(set))
        .collect::<Vec<_>>();
    for read in configs.into_iter().chain(sets) {
        match read.and_then(merge::nest) {
            Ok(node) => {
                root = Some(match root {
                    Some(base) => merge::merge(base, node),
                    None => node,
                });
            }
            Err(problem) => problems.push(problem),
        }
    }
    let expanded = match root {
        Some(root) if problems.is_empty() => Some(expand::expand(root, &mut reader, &mut problems)),
        _ => None,
    };
    let (sources, notes, broken) = reader.finish();
    match expanded {
        Some(root) if problems.is_empty() => Ok(Resolved {
            root,
            sources,
            notes,
            broken,
        }),
        _ => Err(Unresolved { problems, sources }),
    }
}

/// Reads untrusted bytes as a configuration, without access to variables and other sources. For fuzzing: must return
/// for any input.
pub fn parse_untrusted(bytes: &[u8]) -> Result<Resolved, Unresolved> {
    struct Nothing<'a>(&'a [u8]);
    impl ConfigProviders for Nothing<'_> {
        fn env(&self, name: &str) -> Result<Option<String>, ProviderError> {
            // A self-reference, so that fuzzing reaches nested and recursive expansion.
            Ok((name == "SELF").then(|| String::from_utf8_lossy(self.0).into_owned()))
        }
        fn read(&self, path: &str) -> Result<Vec<u8>, ProviderError> {
            match path {
                "input" => Ok(self.0.to_vec()),
                _ => Err(ProviderError::Open {
                    path: path.to_owned(),
                    error: std::io::ErrorKind::NotFound.into(),
                }),
            }
        }
        fn fetch(&self, _: &str) -> Result<Vec<u8>, ProviderError> {
            Err(ProviderError::NoClient)
        }
    }
    let input = Input {
        configs: vec!["file:input".to_owned()],
        sets: Vec::new(),
    };
    resolve(&input, &Nothing(bytes))
}

fn empty_map(at: Location) -> Node {
    Node::new(Value::Map(Map::new()), at)
}
