//! Assigns unwind information to address ranges.
//!
//! A file may describe the same code several times. Spans are collected first and decoded later, so that hidden
//! ones are never decoded.

use std::cmp::Reverse;

/// The address range of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub start: u64,
    pub end: u64,
    pub origin: Origin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// The offset of the entry in `.eh_frame`.
    EhFrame(u32),
    /// The offset of the entry in `.debug_frame`.
    DebugFrame(u32),
    /// The number of a Go function.
    Go(u32),
    /// The number of a rule for the whole span.
    Fixed(u32),
}

/// Sorted by start; of those with the same start, the winner comes last.
#[derive(Debug, Default)]
pub(crate) struct Spans(Vec<Span>);

impl Spans {
    pub fn new(mut spans: Vec<Span>) -> Self {
        spans.retain(|span| span.start < span.end);
        // The shorter one wins; with equal lengths, the first in its section.
        spans.sort_unstable_by_key(|span| (span.start, Reverse(span.end), Reverse(span.origin)));
        Self(spans)
    }

    pub fn as_slice(&self) -> &[Span] {
        &self.0
    }

    /// The ranges between `start` and `end` without a span.
    pub fn gaps(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut at = start;
        for span in &self.0 {
            if span.start >= end {
                break;
            }
            if span.start > at {
                gaps.push((at, span.start));
            }
            at = at.max(span.end);
        }
        if at < end {
            gaps.push((at, end));
        }
        gaps
    }

    /// Adds `below` where there is no span yet.
    pub fn fill(&mut self, below: Vec<Span>) {
        let mut below = Self::new(below).0;
        // Removing overlaps limits the number of pieces to about the number of spans.
        for index in 1..below.len() {
            below[index - 1].end = below[index - 1].end.min(below[index].start);
        }
        below.retain(|span| span.start < span.end);
        let (Some(first), Some(last)) = (below.first(), below.last()) else {
            return;
        };
        let mut gaps = self.gaps(first.start, last.end).into_iter().peekable();
        let mut pieces = Vec::new();
        for span in below {
            while let Some(&(start, end)) = gaps.peek() {
                let piece = Span {
                    start: span.start.max(start),
                    end: span.end.min(end),
                    ..span
                };
                if piece.start < piece.end {
                    pieces.push(piece);
                }
                if end > span.end {
                    break;
                }
                gaps.next();
            }
        }
        pieces.append(&mut self.0);
        *self = Self::new(pieces);
    }
}
