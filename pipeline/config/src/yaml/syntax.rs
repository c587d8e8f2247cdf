//! Advice on syntax errors, by what the text holds where the scanner gave up: its errors are texts without a kind.

use saphyr_parser::Marker;

use crate::node::MAX_DEPTH;

/// Where the scanner gave up.
pub(super) struct SyntaxContext<'t> {
    /// The text up to there.
    before: &'t str,
    /// The rest of the line.
    rest: &'t str,
    /// The lines below.
    below: &'t str,
}

/// What is wrong there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    TooDeep,
    Tab,
    /// A `:` that starts no value.
    Colon,
    /// A character that cannot start a text.
    Special,
    /// A bracket that is not closed, or that holds a text with another one.
    Bracket,
    Other,
}

impl<'t> SyntaxContext<'t> {
    pub fn of(text: &'t str, marker: Marker) -> Self {
        let line_number = marker.line().saturating_sub(1);
        let start: usize = text
            .split_inclusive('\n')
            .take(line_number)
            .map(str::len)
            .sum();
        let (above, rest) = text.split_at(start);
        let (line, below) = rest.split_once('\n').unwrap_or((rest, ""));
        let column = line.char_indices().nth(marker.col());
        let column = column.map_or(line.len(), |(at, _)| at);
        Self {
            before: text.get(..above.len() + column).unwrap_or(above),
            rest: line.get(column..).unwrap_or_default(),
            below,
        }
    }

    pub fn mistake(&self, in_brackets: bool) -> Mistake {
        if self.open_brackets() > MAX_DEPTH {
            return Mistake::TooDeep;
        }
        if self.is_after_tab() {
            return Mistake::Tab;
        }
        match self.rest.chars().next() {
            Some(':') => Mistake::Colon,
            Some('@' | '`' | '%') => Mistake::Special,
            // The message is about that name or quote.
            Some('*' | '&' | '!' | '\'' | '"') => Mistake::Other,
            _ if in_brackets => Mistake::Bracket,
            _ if self.continues_after_tab() => Mistake::Tab,
            _ => Mistake::Other,
        }
    }

    /// Counts those in quotes and comments, too, which only matters after more than a hundred.
    fn open_brackets(&self) -> usize {
        let count = |brackets: [char; 2]| self.before.matches(brackets).count();
        count(['[', '{']).saturating_sub(count([']', '}']))
    }

    /// Whether an indented line below, which may continue a text, is indented by a tab.
    fn continues_after_tab(&self) -> bool {
        let mut lines = self.below.lines().take_while(|it| it.starts_with(is_blank));
        lines.any(|line| line.trim_start_matches(' ').starts_with('\t'))
    }

    /// Whether the indentation, or what follows an indicator, holds a tab.
    fn is_after_tab(&self) -> bool {
        let above = self.before.trim_end_matches(is_blank);
        let here = self.rest.trim_start_matches(is_blank);
        let blanks = [
            self.before.strip_prefix(above),
            self.rest.strip_suffix(here),
        ];
        blanks.into_iter().flatten().any(|it| it.contains('\t'))
            && (above.is_empty() || above.ends_with(['\n', ':', '-', '?']))
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t')
}
