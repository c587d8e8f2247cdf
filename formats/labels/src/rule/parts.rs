//! Patterns of words with anything between them: `a.*`, `(a|b).+`, `(.+);(.+)`, `(.+)@.+\.service`, `([^-]+)-.*`.

use std::ops::Range;

use super::pattern::{Spans, is_plain};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    /// One of these, the first that fits.
    starts: Vec<String>,
    start_is_group: bool,
    first: Any,
    second: Option<(String, Any)>,
    end: String,
}

/// `.*`, `.+`, `[^x]*`, `[^x]+`, or a group of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Any {
    least: usize,
    is_group: bool,
    /// The letter that it is not.
    but: Option<char>,
}

/// Where they are in a text.
pub(super) struct Found {
    start: Range<usize>,
    first: Range<usize>,
    second: Option<Range<usize>>,
}

impl Parts {
    /// `None` where there is more in the pattern.
    pub fn of(regex: &str) -> Option<Self> {
        let (starts, start_is_group, rest) = starts(regex);
        let (first, rest) = Any::read(rest)?;
        let (middle, rest) = words(rest);
        let (second, end, rest) = match Any::read(rest) {
            Some((any, rest)) => {
                let (end, rest) = words(rest);
                (Some((middle, any)), end, rest)
            }
            None => (None, middle, rest),
        };
        // So its end is where that letter is first. Else what is behind would have to be tried from many places.
        let is_sure = match (first.but, &second) {
            (Some(but), Some((middle, _))) => middle.starts_with(but),
            _ => true,
        };
        (rest.is_empty() && is_sure).then_some(Self {
            starts,
            start_is_group,
            first,
            second,
            end,
        })
    }

    pub fn find(&self, text: &str) -> Option<Found> {
        let found = |start: &String| self.behind(start, text);
        self.starts.iter().find_map(found)
    }

    pub fn groups(&self, found: Found, text: &str) -> Spans {
        let second = self.second.as_ref().map(|(_, second)| *second);
        let groups = [
            self.start_is_group.then_some(found.start),
            self.first.is_group.then_some(found.first),
            second.filter(|it| it.is_group).and(found.second),
        ];
        let mut spans = [Some(0..text.len()), None, None, None];
        for (span, group) in spans[1..].iter_mut().zip(groups.into_iter().flatten()) {
            *span = Some(group);
        }
        spans
    }

    /// The first of two takes as much as it can.
    fn behind(&self, start: &str, text: &str) -> Option<Found> {
        let rest = text.strip_prefix(start)?.strip_suffix(&*self.end)?;
        let (first, second) = match &self.second {
            None => (0..rest.len(), None),
            Some((middle, second)) => {
                let end = rest.len().checked_sub(second.least)?;
                let before = &rest[..rest.floor_char_boundary(end)];
                let at = match self.first.but {
                    Some(but) => before
                        .find(but)
                        .filter(|&at| before[at..].starts_with(middle))?,
                    None => last(before, middle)?,
                };
                let behind = at + middle.len()..rest.len();
                if !second.may_be(&rest[behind.clone()]) {
                    return None;
                }
                (0..at, Some(behind))
            }
        };
        let moved = |span: Range<usize>| span.start + start.len()..span.end + start.len();
        self.first.may_be(&rest[first.clone()]).then(|| Found {
            start: 0..start.len(),
            first: moved(first),
            second: second.map(moved),
        })
    }
}

impl Any {
    fn read(text: &str) -> Option<(Self, &str)> {
        let (is_group, inner) = match text.strip_prefix('(') {
            Some(inner) => (true, inner),
            None => (false, text),
        };
        let (but, rest) = match inner.strip_prefix('.') {
            Some(rest) => (None, rest),
            None => {
                let mut letters = inner.strip_prefix("[^")?.chars();
                let but = letters.next().filter(|&it| is_plain(it) || it == '.')?;
                (Some(but), letters.as_str().strip_prefix(']')?)
            }
        };
        let (least, rest) = match rest.strip_prefix('*') {
            Some(rest) => (0, rest),
            None => (1, rest.strip_prefix('+')?),
        };
        let rest = match is_group {
            true => rest.strip_prefix(')')?,
            false => rest,
        };
        let any = Self {
            least,
            is_group,
            but,
        };
        // A count behind it means something else.
        (!rest.starts_with(['*', '+', '?', '{'])).then_some((any, rest))
    }

    fn may_be(&self, text: &str) -> bool {
        text.len() >= self.least && self.but.is_none_or(|but| !text.contains(but))
    }
}

/// Words that a pattern begins with, or a group of them, and what is behind.
fn starts(regex: &str) -> (Vec<String>, bool, &str) {
    if let Some((group, rest)) = regex.strip_prefix('(').and_then(|it| it.split_once(')'))
        && group.chars().all(|c| is_plain(c) || c == '|')
    {
        return (group.split('|').map(str::to_owned).collect(), true, rest);
    }
    let (start, rest) = words(regex);
    (vec![start], false, rest)
}

/// What stands for itself, also behind a backslash.
fn words(text: &str) -> (String, &str) {
    let mut words = String::new();
    let mut rest = text;
    loop {
        let mut letters = rest.strip_prefix('\\').unwrap_or(rest).chars();
        let is_escaped = rest.starts_with('\\');
        match letters.next() {
            Some(letter) if is_escaped && letter.is_ascii_punctuation() => words.push(letter),
            Some(letter) if !is_escaped && is_plain(letter) => words.push(letter),
            _ => return (words, rest),
        }
        rest = letters.as_str();
    }
}

/// Where it is found last.
fn last(text: &str, words: &str) -> Option<usize> {
    match words.as_bytes() {
        [byte] => text.bytes().rposition(|it| it == *byte),
        _ => text.rfind(words),
    }
}
