//! Replacement text with `$1`, `${name}` and `$$`, parsed as in Go.

use std::borrow::Cow;

use regex_automata::PatternID;
use regex_automata::util::captures::GroupInfo;

use super::groups::Groups;

#[derive(Clone, Debug)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug)]
enum Part {
    Text(String),
    Group(usize),
}

impl Template {
    /// References to groups that the pattern does not have expand to nothing.
    pub fn new(text: &str, groups: &GroupInfo) -> Self {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            plain.push_str(before);
            rest = after;
            if let Some(after) = rest.strip_prefix('$') {
                plain.push('$');
                rest = after;
                continue;
            }
            let Some((name, after)) = reference(rest) else {
                plain.push('$');
                continue;
            };
            rest = after;
            let group = match number(name) {
                Some(group) => {
                    Some(group).filter(|group| *group < groups.group_len(PatternID::ZERO))
                }
                None => groups.to_index(PatternID::ZERO, name),
            };
            if let Some(group) = group {
                push_text(&mut parts, &mut plain);
                parts.push(Part::Group(group));
            }
        }
        plain.push_str(rest);
        push_text(&mut parts, &mut plain);
        Self(parts)
    }

    /// Text in which `$` has no special meaning.
    pub fn literal(text: &str) -> Self {
        let mut parts = Vec::new();
        push_text(&mut parts, &mut text.to_owned());
        Self(parts)
    }

    pub fn is_constant(&self) -> bool {
        matches!(&*self.0, [] | [Part::Text(_)])
    }

    /// The text of a constant template; empty otherwise.
    pub fn constant(&self) -> Cow<'_, str> {
        match &*self.0 {
            [Part::Text(text)] => Cow::Borrowed(text),
            _ => Cow::Borrowed(""),
        }
    }

    /// Expands the groups matched in `source`; borrows if the result is a single group or constant.
    pub fn filled<'a>(&'a self, source: &Cow<'a, str>, groups: &Groups) -> Cow<'a, str> {
        let span = |group| groups.span(group).unwrap_or_default();
        match &*self.0 {
            [] => Cow::Borrowed(""),
            [Part::Text(text)] => Cow::Borrowed(text),
            [Part::Group(group)] => match source {
                Cow::Borrowed(text) => Cow::Borrowed(text.get(span(*group)).unwrap_or_default()),
                Cow::Owned(text) => Cow::Owned(text.get(span(*group)).unwrap_or_default().into()),
            },
            parts => {
                let mut filled = String::with_capacity(source.len() + 16);
                for part in parts {
                    filled.push_str(match part {
                        Part::Text(text) => text,
                        Part::Group(group) => source.get(span(*group)).unwrap_or_default(),
                    });
                }
                Cow::Owned(filled)
            }
        }
    }
}

fn push_text(parts: &mut Vec<Part>, text: &mut String) {
    if !text.is_empty() {
        parts.push(Part::Text(std::mem::take(text)));
    }
}

/// The name at the start of `text`, with or without braces, and the rest.
fn reference(text: &str) -> Option<(&str, &str)> {
    let (inner, has_brace) = match text.strip_prefix('{') {
        Some(inner) => (inner, true),
        None => (text, false),
    };
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let end = inner.find(|c| !is_name(c)).unwrap_or(inner.len());
    let (name, rest) = inner.split_at_checked(end)?;
    let rest = if has_brace {
        rest.strip_prefix('}')?
    } else {
        rest
    };
    (!name.is_empty()).then_some((name, rest))
}

/// The number of a group: digits without a leading zero.
fn number(name: &str) -> Option<usize> {
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
    let has_zeros = name.len() > 1 && name.starts_with('0');
    (is_number && !has_zeros && name.len() <= 9).then(|| name.parse().ok())?
}
