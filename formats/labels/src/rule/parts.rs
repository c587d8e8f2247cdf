//! Literals with wildcards between them: `a.*`, `(a|b).+`, `(.+);(.+)`, `(.+)@.+\.service`, `([^-]+)-.*`.

use std::ops::Range;

use super::groups::Spans;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    /// Alternatives; the first match wins.
    starts: Vec<String>,
    start_is_group: bool,
    first: Any,
    second: Option<(String, Any)>,
    end: String,
}

/// `.*`, `.+`, `[^x]*`, `[^x]+`, or a group of one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Any {
    least: usize,
    is_group: bool,
    /// The excluded character.
    but: Option<char>,
}

/// The position of the wildcards in a text.
pub(super) struct Position {
    start: Range<usize>,
    first: Range<usize>,
    second: Option<Range<usize>>,
}

impl Parts {
    /// `None` if the pattern contains anything else.
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
        // The wildcard must end at the first excluded character; otherwise the rest would need backtracking.
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

    pub fn find(&self, text: &str) -> Option<Position> {
        let position = |start: &String| self.behind(start, text);
        self.starts.iter().find_map(position)
    }

    pub fn groups(&self, position: Position, text: &str) -> Spans {
        let second = self.second.as_ref().map(|(_, second)| *second);
        let groups = [
            self.start_is_group.then_some(position.start),
            self.first.is_group.then_some(position.first),
            second.filter(|it| it.is_group).and(position.second),
        ];
        let mut spans = [Some(0..text.len()), None, None, None];
        for (span, group) in spans[1..].iter_mut().zip(groups.into_iter().flatten()) {
            *span = Some(group);
        }
        spans
    }

    /// The first of two wildcards is greedy.
    fn behind(&self, start: &str, text: &str) -> Option<Position> {
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
        self.first.may_be(&rest[first.clone()]).then(|| Position {
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
        // A repeat count after it changes the meaning.
        (!rest.starts_with(['*', '+', '?', '{'])).then_some((any, rest))
    }

    fn may_be(&self, text: &str) -> bool {
        text.len() >= self.least && self.but.is_none_or(|but| !text.contains(but))
    }
}

/// The literal or group of literals at the start of a pattern, and the rest.
fn starts(regex: &str) -> (Vec<String>, bool, &str) {
    if let Some((group, rest)) = regex.strip_prefix('(').and_then(|it| it.split_once(')'))
        && group.chars().all(|c| is_plain(c) || c == '|')
    {
        return (group.split('|').map(str::to_owned).collect(), true, rest);
    }
    let (start, rest) = words(regex);
    (vec![start], false, rest)
}

/// Leading literal characters, including escaped ones.
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

/// Whether the character is a literal in a pattern.
pub(super) fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || "_/:;,-@%=<> ".contains(c)
}

/// The last occurrence.
fn last(text: &str, words: &str) -> Option<usize> {
    match words.as_bytes() {
        [byte] => text.bytes().rposition(|it| it == *byte),
        _ => text.rfind(words),
    }
}
