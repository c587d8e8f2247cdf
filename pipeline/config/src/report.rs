//! Renders problems: the message, the source line, and help.
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

use profcol_printable::{indented, is_printable};

use crate::problem::{Problem, Problems};
use crate::sources::{Location, Sources};

/// Longer lines are truncated.
const MAX_LINE: usize = 120;
/// Maximum number of nested `${…}` shown.
const MAX_CHAIN: usize = 4;

pub struct Report<'a> {
    problems: &'a Problems,
    sources: &'a Sources,
}

impl Problems {
    /// The full report with file, line, snippet and help.
    pub fn report<'a>(&'a self, sources: &'a Sources) -> Report<'a> {
        Report {
            problems: self,
            sources,
        }
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
        let main = problem.at.map(|at| self.shown(at));
        let locations = main
            .iter()
            .map(|(at, _)| at)
            .chain(problem.related.iter().map(|(at, _)| at));
        let gutter = locations
            .map(|at| at.line.to_string().len())
            .max()
            .unwrap_or(0);
        if let Some((at, label)) = &main {
            self.snippet(f, gutter, *at, label)?;
        }
        for (at, label) in &problem.related {
            self.snippet(f, gutter, *at, label)?;
        }
        if let Some(help) = &problem.help {
            write!(f, "\n{:gutter$} = help: {}", "", indented(help))?;
        }
        Ok(())
    }

    /// The location to show and its label: for an empty text, the location of the reference to it.
    fn shown(&self, at: Location) -> (Location, String) {
        match self.sources.used_at(at.source) {
            Some(user) if self.sources.text(at.source).is_empty() => {
                let empty = self.sources.name(at.source);
                (user, format!("`{empty}` is empty or not set"))
            }
            _ => (at, String::new()),
        }
    }

    fn snippet(
        &self,
        f: &mut fmt::Formatter<'_>,
        gutter: usize,
        at: Location,
        label: &str,
    ) -> fmt::Result {
        let position = |at: Location| {
            let name = profcol_printable::line(self.sources.name(at.source));
            format!("{name}:{}:{}", at.line, at.column)
        };
        write!(f, "\n{:gutter$}--> {}", "", position(at))?;
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
                write!(f, " {}", profcol_printable::line(label))?;
            }
        }
        let mut next = self.sources.used_at(at.source);
        for _ in 0..MAX_CHAIN {
            let Some(user) = next else { break };
            write!(f, "\n{:gutter$} = used at {}", "", position(user))?;
            next = self.sources.used_at(user.source);
        }
        Ok(())
    }

    /// The line with secrets masked character by character, so that columns stay correct.
    fn masked(&self, line: &str, at: Location) -> String {
        let here = |secret: &&Location| secret.source == at.source && secret.line == at.line;
        let mut chars: Vec<char> = line.chars().collect();
        let is_checked = |secret: &Location| secret.source == at.source;
        if !self.problems.secrets().iter().any(is_checked)
            && let Some(start) = likely_secret(line)
            && let Some(hidden) = chars.get_mut(start..)
        {
            hidden.fill('*');
        }
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

/// Where, in characters, the first text begins that is likely a secret: the value of a key with such a name, or a URL with a
/// user. For text without options, as it is not valid YAML or could not be completed.
fn likely_secret(line: &str) -> Option<usize> {
    const NAMES: [&str; 9] = [
        "api_key",
        "api-key",
        "authorization",
        "credential",
        "htpasswd",
        "_pem",
        "password",
        "secret",
        "token",
    ];
    let lower = line.to_ascii_lowercase();
    let value_of = |name: &&str| {
        let key = lower.find(*name)?;
        let colon = key + lower.get(key..)?.find(':')?;
        let value = lower.get(colon + 1..)?;
        // A reference is none, and what the report may be about.
        let is_reference = value.trim_start().starts_with("${") && !value.contains(":-");
        (!is_reference).then_some(colon + 1)
    };
    let url = lower.find("://").map(|scheme| scheme + 3);
    let url = url.filter(|start| lower.get(*start..).is_some_and(|rest| rest.contains('@')));
    let start = NAMES.iter().filter_map(value_of).chain(url).min()?;
    let blank = |c: &char| c.is_whitespace();
    let (before, value) = line.split_at_checked(start)?;
    Some(before.chars().count() + value.chars().take_while(blank).count())
}

/// A line truncated around the marked location.
struct Line {
    text: String,
    before: usize,
    carets: usize,
}

impl Line {
    fn new(line: &str, at: Location) -> Self {
        let chars: Vec<char> = line
            .chars()
            .map(|c| if is_printable(c) { c } else { ' ' })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml;

    fn sources(text: &str) -> (Sources, Location) {
        let mut sources = Sources::default();
        let id = sources.add("t.yaml", text, None).expect("small");
        let at = yaml::parse(&sources, id).expect("valid YAML").at;
        (sources, at)
    }

    #[track_caller]
    fn check(text: &str, problem: impl FnOnce(Location) -> Problem, expected: &str) {
        let (sources, at) = sources(text);
        let problems = Problems::from(problem(at));
        assert_eq!(problems.report(&sources).to_string(), expected);
    }

    #[test]
    fn marks_the_location() {
        let found = |at| {
            Problem::new("bad").at(Location {
                line: 2,
                column: 4,
                width: 5,
                ..at
            })
        };
        check(
            "a: 1\nb: éxyzw # c",
            |at| found(at).help("do better"),
            "bad\n --> t.yaml:2:4\n  |\n2 | b: éxyzw # c\n  |    ^^^^^\n  = help: do better",
        );
    }

    #[test]
    fn hides_what_is_likely_a_secret() {
        for (line, expected) in [
            ("  bearer_token: hunter2", Some(16)),
            ("é: {Password: hunter2, a: 1}", Some(14)),
            ("endpoint: http://user:hunter2@h", Some(17)),
            ("endpoint: http://h:1", None),
            ("token: ${env:TOKEN}", None),
            ("token: ${env:TOKEN:-hunter2}", Some(7)),
            ("token", None),
            ("", None),
        ] {
            assert_eq!(likely_secret(line), expected, "{line}");
        }
    }

    #[test]
    fn truncates_a_long_line() {
        let text = format!("a: {}TARGET{}", "x".repeat(200), "y".repeat(200));
        let found = |at| {
            Problem::new("bad").at(Location {
                column: 204,
                width: 6,
                ..at
            })
        };
        let expected = format!(
            "bad\n --> t.yaml:1:204\n  |\n1 | …{}TARGET{}…\n  | {}^^^^^^",
            "x".repeat(40),
            "y".repeat(74),
            " ".repeat(41)
        );
        check(&text, found, &expected);
    }

    #[test]
    fn survives_locations_outside_the_text() {
        let far = |line, column| {
            move |at| {
                Problem::new("bad").at(Location {
                    line,
                    column,
                    width: 9,
                    ..at
                })
            }
        };
        check("a: 1", far(9, 1), "bad\n --> t.yaml:9:1");
        check("a: 1", far(0, 0), "bad\n --> t.yaml:0:0");
        check(
            "a: 1",
            far(1, 99),
            "bad\n --> t.yaml:1:99\n  |\n1 | a: 1\n  |     ^",
        );
        check(
            "a: \"\\e\u{7f}\"",
            far(1, 5),
            "bad\n --> t.yaml:1:5\n  |\n1 | a: \"\\e \"\n  |     ^^^^",
        );
    }

    #[test]
    fn masks_secrets_on_the_shown_line() {
        let text = "{token: s3cret, n: big, pass: \"hunter\n  2\"}";
        let (sources, at) = sources(text);
        let mut problems = Problems::from(Problem::new("bad").at(Location {
            column: 20,
            width: 3,
            ..at
        }));
        problems.mask_source(Location {
            column: 9,
            width: 6,
            ..at
        });
        problems.mask_source(Location {
            column: 31,
            width: 0,
            ..at
        });
        assert_eq!(
            problems.report(&sources).to_string(),
            "bad\n --> t.yaml:1:20\n  |\n1 | {token: ******, n: big, pass: *******\n  |                    ^^^"
        );
    }

    #[test]
    fn counts_omitted_problems() {
        let (sources, _) = sources("");
        let mut problems = Problems::default();
        for i in 0..crate::MAX_PROBLEMS + 7 {
            problems.nested("a::b", |p| p.add("c", format!("bad {i}")));
        }
        let report = problems.report(&sources).to_string();
        assert!(
            report.starts_with("a::b::c: bad 0\n\na::b::c: bad 1\n\n"),
            "{report}"
        );
        assert!(
            report.ends_with("a::b::c: bad 99\n\nand 7 more"),
            "{report}"
        );
        assert!(
            problems
                .to_string()
                .ends_with("a::b::c: bad 99\nand 7 more")
        );
    }
}
