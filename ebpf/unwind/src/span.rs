//! Which unwind information describes which addresses.
//!
//! A file may say several things of the same code. Spans are gathered first and looked into later,
//! so that what nobody will see is never decoded.

use std::cmp::Reverse;

/// Addresses that one entry describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub start: u64,
    pub end: u64,
    pub origin: Origin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// Offset of the entry in `.eh_frame`.
    EhFrame(u32),
    /// Offset of the entry in `.debug_frame`.
    DebugFrame(u32),
    /// Number of a Go function.
    Go(u32),
    /// Number of a rule that holds all over the span.
    Fixed(u32),
}

/// In the order of their starts; of those that start together, the one that wins comes last.
#[derive(Debug, Default)]
pub(crate) struct Spans(Vec<Span>);

impl Spans {
    pub fn new(mut spans: Vec<Span>) -> Self {
        spans.retain(|span| span.start < span.end);
        // The shorter one wins, or else the first in its section.
        spans.sort_unstable_by_key(|span| (span.start, Reverse(span.end), Reverse(span.origin)));
        Self(spans)
    }

    pub fn as_slice(&self) -> &[Span] {
        &self.0
    }

    /// Addresses between `start` and `end` that nothing describes.
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

    /// Adds what describes addresses that nothing describes yet.
    pub fn fill(&mut self, below: Vec<Span>) {
        let mut below = Self::new(below).0;
        // Without overlaps, so that the pieces cannot be many more than there are spans.
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
