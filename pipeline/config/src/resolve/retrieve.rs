//! Reads one source: a URI from the command line or from inside a `${…}`.

use std::collections::HashMap;
use std::sync::Arc;

use super::providers::ConfigProviders;
use super::{Note, NoteLevel, empty_map};
use crate::node::Node;
use crate::problem::{MAX_PROBLEMS, Problem};
use crate::sources::{Location, SourceId, SourceLimitError, Sources};
use crate::suggest::did_you_mean;
use crate::values::Url;
use crate::yaml::{self, Budget};

/// Supported URI schemes.
pub const SCHEMES: [&str; 5] = ["env", "file", "http", "https", "yaml"];

pub(super) struct Reader<'w> {
    providers: &'w dyn ConfigProviders,
    sources: Sources,
    pub(super) notes: Vec<Note>,
    /// YAML errors in the text of references, which are then plain strings.
    broken: Vec<Problem>,
    pub(super) budget: Budget,
    /// Cache: each file, URL and variable is read once.
    read: HashMap<String, Arc<str>>,
}

/// The text behind a URI.
pub(super) struct Retrieved {
    pub(super) source: SourceId,
    pub(super) text: Arc<str>,
}

struct Uri<'a> {
    scheme: &'a str,
    body: &'a str,
}

impl<'w> Reader<'w> {
    pub(super) fn new(providers: &'w dyn ConfigProviders) -> Self {
        Reader {
            providers,
            sources: Sources::default(),
            notes: Vec::new(),
            broken: Vec::new(),
            budget: Budget::default(),
            read: HashMap::new(),
        }
    }

    pub(super) fn finish(self) -> (Sources, Vec<Note>, Vec<Problem>) {
        (self.sources, self.notes, self.broken)
    }

    pub(super) fn note_broken(&mut self, problem: Problem) {
        if self.broken.len() < MAX_PROBLEMS {
            self.broken.push(problem);
        }
    }

    /// Reads one `--config`. A path needs no scheme.
    pub(super) fn config(&mut self, text: &str) -> Result<Node, Problem> {
        let is_drive =
            text.starts_with(|c: char| c.is_ascii_alphabetic()) && text[1..].starts_with(':');
        let uri = if is_drive || !text.contains(':') {
            Uri {
                scheme: "file",
                body: text,
            }
        } else {
            let help = format!("write a path that contains a colon as `file:{text}`");
            let uri = Uri::parse(text)
                .ok_or_else(|| Problem::new(format!("invalid uri: {text:?}")).help(help))?;
            if !SCHEMES.contains(&uri.scheme) {
                let problem = Problem::new(format!("unsupported scheme on URI {text:?}"));
                return Err(advise_scheme(problem, uri.scheme));
            }
            uri
        };
        let read = self.retrieve(&uri, None)?;
        self.document(&read)
    }

    /// Parses one `--set`: `a.b=v` is the document `a::b: v`.
    pub(super) fn set(&mut self, text: &str) -> Result<Node, Problem> {
        let Some((key, value)) = text.split_once('=') else {
            return Err(Problem::new(format!("--set {text:?}: missing equal sign"))
                .help("write `--set key.of.option=value`"));
        };
        let yaml = format!("{}: {}", key.trim().replace('.', "::"), value.trim());
        // The value may be a secret.
        let name = format!("--set {}", shorten(key));
        let read = self.keep(name, Arc::from(yaml), None)?;
        self.document(&read)
    }

    /// Reads the source of a `${…}` at `at`, given without the brackets.
    pub(super) fn reference(&mut self, text: &str, at: Location) -> Result<Retrieved, Problem> {
        let with_default_scheme;
        let text = if text.contains(':') {
            text
        } else {
            with_default_scheme = format!("env:{text}");
            &with_default_scheme
        };
        let forgot_env = text
            .split_once(":-")
            .is_some_and(|(name, _)| is_variable_name(name));
        let uri = Uri::parse(text).ok_or_else(|| {
            let problem = Problem::new(format!("invalid uri: {text:?}"));
            problem.help(match forgot_env {
                true => format!("write `${{env:{text}}}`"),
                false => "write `${env:NAME}`, `${file:path}`, or `$${…}` for a literal `${…}`"
                    .to_owned(),
            })
        })?;
        if !SCHEMES.contains(&uri.scheme) {
            let problem = Problem::new(format!(
                "scheme {:?} is not supported for uri {text:?}",
                uri.scheme
            ));
            return Err(match forgot_env {
                true => problem.help(format!("write `${{env:{text}}}`")),
                false => advise_scheme(problem, uri.scheme),
            });
        }
        if uri.body.contains('$') {
            return Err(Problem::new(format!(
                "the uri {text:?} contains unsupported characters ('$')"
            )));
        }
        self.retrieve(&uri, Some(at))
    }

    fn document(&mut self, read: &Retrieved) -> Result<Node, Problem> {
        let node = yaml::parse_within(&read.text, read.source, 0, &mut self.budget)?;
        match node.value.kind() {
            "map" => Ok(node),
            "null" => Ok(empty_map(node.at)),
            kind => Err(Problem::new(format!("retrieved value (type={kind}) cannot be used as a configuration"))
                .at(node.at)
                .help("a configuration must be a map of sections: receivers, processors, exporters, extensions, service")),
        }
    }

    fn retrieve(&mut self, uri: &Uri<'_>, used_at: Option<Location>) -> Result<Retrieved, Problem> {
        let Uri { scheme, body } = *uri;
        match scheme {
            "env" => self.variable(body, used_at),
            "yaml" => {
                let text = self.once("yaml", body, |_| Ok(body.as_bytes().to_vec()))?;
                // The value may be a secret.
                let key = body.split(':').next().unwrap_or_default();
                let key = key.trim_start_matches(['{', '[', ' ']);
                self.keep(format!("yaml:{}", shorten(key)), text, used_at)
            }
            "file" => {
                let text = self.once("file", body, |providers| {
                    providers.read(body).map_err(|error| {
                        Problem::new(format!("unable to read the file file:{body}: {error}"))
                    })
                })?;
                self.keep(body, text, used_at)
            }
            _ => {
                let url = Url::new(format!("{scheme}:{body}"));
                let text = self.once(scheme, body, |providers| {
                    providers.fetch(url.expose()).map_err(|error| {
                        Problem::new(format!("unable to download {url:?}: {error}"))
                    })
                })?;
                self.keep(url.to_string(), text, used_at)
            }
        }
    }

    fn variable(&mut self, body: &str, used_at: Option<Location>) -> Result<Retrieved, Problem> {
        let (name, default) = match body.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (body, None),
        };
        if !is_variable_name(name) {
            let mut problem = Problem::new(format!(
                "environment variable {name:?} has invalid name: must match regex ^[a-zA-Z_][a-zA-Z0-9_]*$"
            ));
            problem.help = match name.split_once('-') {
                Some((name, default)) if is_variable_name(name) => {
                    Some(format!("write a default as `${{env:{name}:-{default}}}`"))
                }
                _ => None,
            };
            return Err(problem);
        }
        let value = self.providers.env(name);
        let value = value.map_err(|error| Problem::new(error.to_string()))?;
        let text = match (value, default) {
            (Some(value), _) => {
                if value.is_empty() {
                    self.note(
                        NoteLevel::Info,
                        format!("configuration references empty environment variable {name:?}"),
                        used_at,
                    );
                }
                value
            }
            (None, Some(default)) => default.to_owned(),
            (None, None) => {
                self.note(
                    NoteLevel::Warning,
                    format!("configuration references unset environment variable {name:?}"),
                    used_at,
                );
                String::new()
            }
        };
        let text = self.once("env", body, |_| Ok(text.into_bytes()))?;
        self.keep(format!("env:{name}"), text, used_at)
    }

    /// Adds a note once per message.
    fn note(&mut self, level: NoteLevel, message: String, at: Option<Location>) {
        if !self.notes.iter().any(|note| note.message == message) {
            self.notes.push(Note { level, message, at });
        }
    }

    /// The text of `scheme:body`, read by `read` on first use.
    fn once(
        &mut self,
        scheme: &str,
        body: &str,
        read: impl FnOnce(&dyn ConfigProviders) -> Result<Vec<u8>, Problem>,
    ) -> Result<Arc<str>, Problem> {
        let key = format!("{scheme}:{body}");
        if let Some(text) = self.read.get(&key) {
            return Ok(text.clone());
        }
        let bytes = read(self.providers)?;
        let text: Arc<str> = match String::from_utf8(bytes) {
            Ok(text) => Arc::from(text),
            Err(error) => {
                let valid = error
                    .as_bytes()
                    .get(..error.utf8_error().valid_up_to())
                    .unwrap_or_default();
                let line = valid.iter().filter(|b| **b == b'\n').count() + 1;
                let problem = Problem::new(format!(
                    "`{}` is not UTF-8 text (line {line})",
                    shorten(body)
                ));
                return Err(problem.help("save it as UTF-8"));
            }
        };
        self.read.insert(key, text.clone());
        Ok(text)
    }

    fn keep(
        &mut self,
        name: impl Into<String>,
        text: Arc<str>,
        used_at: Option<Location>,
    ) -> Result<Retrieved, Problem> {
        let source = self
            .sources
            .add(name, text.clone(), used_at)
            .map_err(|error: SourceLimitError| Problem::new(error.to_string()))?;
        Ok(Retrieved { source, text })
    }

    pub(super) fn sources(&self) -> &Sources {
        &self.sources
    }
}

impl<'a> Uri<'a> {
    /// `[A-Za-z][A-Za-z0-9+.-]+:body`; one letter alone is a drive, not a scheme.
    fn parse(text: &'a str) -> Option<Self> {
        let (scheme, body) = text.split_once(':')?;
        let mut chars = scheme.chars();
        let valid = chars.next()?.is_ascii_alphabetic()
            && scheme.len() > 1
            && chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '.' | '-'));
        valid.then_some(Uri { scheme, body })
    }
}

fn advise_scheme(problem: Problem, scheme: &str) -> Problem {
    match did_you_mean(scheme, SCHEMES) {
        Some(near) => problem.help(format!("did you mean \"{near}\"?")),
        None => problem.help(format!("schemes are {}", SCHEMES.join(", "))),
    }
}

fn is_variable_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Shortens text for use as a source name.
fn shorten(text: &str) -> String {
    const MAX_LEN: usize = 60;
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(MAX_LEN) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None if line.len() < text.trim_end().len() => format!("{line}…"),
        None => line.to_owned(),
    }
}
