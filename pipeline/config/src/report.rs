//! Problems as people read them: the sentence, the line it is about, and what could be done.
//!
//! ```text
//! exporters::otlp_grpc::timeout: time: unknown unit "parsecs" in duration "5parsecs"
//!  --> gateway.yaml:2:46
//!   |
//! 2 | exporters: {otlp_grpc: {endpoint: "h:1", timeout: 5parsecs}}
//!   |                                                   ^^^^^^^^
//!   = help: write a number with a unit, such as "300ms", "1.5s" or "2m"
//! ```

use std::fmt;

use crate::node::Location;
use crate::problem::{Problem, Problems};
use crate::sources::Sources;

/// Lines longer than this are shown in part.
const MAX_LINE: usize = 120;
/// How many `${…}` in a row are named on the way from the text to the file.
const MAX_CHAIN: usize = 4;

pub struct Report<'a> {
    problems: &'a Problems,
    sources: &'a Sources,
}

impl<'a> Report<'a> {
    pub(crate) fn new(problems: &'a Problems, sources: &'a Sources) -> Self {
        Report { problems, sources }
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            if i > 0 {
                f.write_str("\n\n")?;
            }
            self.problem(f, problem)?;
        }
        match self.problems.omitted() {
            0 => Ok(()),
            more => write!(f, "\n\nand {more} more"),
        }
    }
}

impl Report<'_> {
    fn problem(&self, f: &mut fmt::Formatter<'_>, problem: &Problem) -> fmt::Result {
        write!(f, "{problem}")?;
        let places = problem
            .at
            .iter()
            .chain(problem.related.iter().map(|(at, _)| at));
        let gutter = places
            .map(|at| at.line.to_string().len())
            .max()
            .unwrap_or(0);
        if let Some(at) = problem.at {
            self.snippet(f, gutter, at, "")?;
        }
        for (at, label) in &problem.related {
            self.snippet(f, gutter, *at, label)?;
        }
        if let Some(help) = &problem.help {
            write!(f, "\n{:gutter$} = help: {help}", "")?;
        }
        Ok(())
    }

    fn snippet(
        &self,
        f: &mut fmt::Formatter<'_>,
        gutter: usize,
        at: Location,
        label: &str,
    ) -> fmt::Result {
        let place =
            |at: Location| format!("{}:{}:{}", self.sources.name(at.source), at.line, at.column);
        write!(f, "\n{:gutter$}--> {}", "", place(at))?;
        if let Some(line) = self.sources.line(at) {
            let shown = Line::new(&self.masked(line, at), at);
            write!(
                f,
                "\n{:gutter$} |\n{:>gutter$} | {}\n{:gutter$} | ",
                "", at.line, shown.text, ""
            )?;
            write!(
                f,
                "{:before$}{}",
                "",
                "^".repeat(shown.carets),
                before = shown.before
            )?;
            if !label.is_empty() {
                write!(f, " {label}")?;
            }
        }
        let mut next = self.sources.used_at(at.source);
        for _ in 0..MAX_CHAIN {
            let Some(user) = next else { break };
            write!(f, "\n{:gutter$} = used at {}", "", place(user))?;
            next = self.sources.used_at(user.source);
        }
        Ok(())
    }

    /// The line with each secret on it blotted out, character by character so that columns stay true.
    fn masked(&self, line: &str, at: Location) -> String {
        let here = |secret: &&Location| secret.source == at.source && secret.line == at.line;
        let mut chars: Vec<char> = line.chars().collect();
        for secret in self.problems.secrets().iter().filter(here) {
            let start = (secret.column as usize).saturating_sub(1).min(chars.len());
            // A secret of unknown length hides the rest of its line.
            let end = match secret.width {
                0 => chars.len(),
                width => (start + width as usize).min(chars.len()),
            };
            if let Some(hidden) = chars.get_mut(start..end) {
                hidden.fill('*');
            }
        }
        chars.into_iter().collect()
    }
}

/// A line cut to a readable length around the marked place.
struct Line {
    text: String,
    before: usize,
    carets: usize,
}

impl Line {
    fn new(line: &str, at: Location) -> Self {
        let chars: Vec<char> = line
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let start = (at.column as usize).saturating_sub(1).min(chars.len());
        let width = (at.width.max(1) as usize).min(chars.len().saturating_sub(start).max(1));
        if chars.len() <= MAX_LINE {
            return Line {
                text: chars.into_iter().collect(),
                before: start,
                carets: width,
            };
        }
        let from = start.saturating_sub(MAX_LINE / 3);
        let to = (from + MAX_LINE).min(chars.len());
        let head = if from > 0 { "…" } else { "" };
        let tail = if to < chars.len() { "…" } else { "" };
        let middle: String = chars.get(from..to).unwrap_or_default().iter().collect();
        Line {
            text: format!("{head}{middle}{tail}"),
            before: start - from + head.chars().count(),
            carets: width.min(to.saturating_sub(start).max(1)),
        }
    }
}
