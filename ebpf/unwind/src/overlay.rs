//! Converts the spans of a segment to the rows of its table.

use profcol_ebpf_common::rule::{EncodedRule, Rule};
use profcol_elf::Segment;

use crate::UnwindTableError;
use crate::span::Span;
use crate::writer::{Step, Writer};

/// Maximum nesting of entries. Code split into hot and cold parts has two levels.
const MAX_NESTED: usize = 64;

/// Decodes a span: the steps from its start to `end`.
pub(crate) trait Decode {
    fn steps(&mut self, span: &Span, end: u64, steps: &mut Vec<Step>);
}

/// Overlays the spans of a segment: where they overlap, the one with the later start wins, and after its end the
/// span below applies again.
pub(crate) struct Overlay<'s, D> {
    segment: &'s Segment,
    decode: &'s mut D,
    writer: &'s mut Writer,
    /// The position up to which rows are written.
    at: u64,
    open: Vec<Open>,
    /// Buffers for reuse.
    spare: Vec<Vec<Step>>,
}

/// A span that has begun.
struct Open {
    end: u64,
    steps: Vec<Step>,
    /// The index of the step at the current position.
    current: usize,
}

impl<'s, D: Decode> Overlay<'s, D> {
    pub fn new(segment: &'s Segment, decode: &'s mut D, writer: &'s mut Writer) -> Self {
        Self {
            segment,
            decode,
            writer,
            at: segment.address,
            open: Vec::new(),
            spare: Vec::new(),
        }
    }

    pub fn run(mut self, spans: &[Span]) -> Result<(), UnwindTableError> {
        let (start, end) = (self.segment.address, self.segment.end());
        let first = spans.partition_point(|span| span.start < start);
        for span in &spans[first..] {
            if span.start >= end {
                break;
            }
            self.write_until(span.start)?;
            self.begin(span)?;
        }
        self.write_until(end)?;
        self.set(end, Rule::Gap.encode())
    }

    fn begin(&mut self, span: &Span) -> Result<(), UnwindTableError> {
        let end = span.end.min(self.segment.end());
        while let Some(open) = self.open.pop_if(|open| open.end <= end) {
            self.spare.push(open.steps);
        }
        if self.open.len() >= MAX_NESTED {
            return Err(UnwindTableError::Broken {
                what: "the order of the unwind information",
            });
        }
        let mut steps = self.spare.pop().unwrap_or_default();
        steps.clear();
        self.decode.steps(span, end, &mut steps);
        self.open.push(Open {
            end,
            steps,
            current: 0,
        });
        Ok(())
    }

    fn write_until(&mut self, limit: u64) -> Result<(), UnwindTableError> {
        while self.at < limit {
            while let Some(open) = self.open.pop_if(|open| open.end <= self.at) {
                self.spare.push(open.steps);
            }
            let Some(mut open) = self.open.pop() else {
                self.set(self.at, Rule::Gap.encode())?;
                self.at = limit;
                break;
            };
            let end = open.end.min(limit);
            self.write(&mut open, end)?;
            self.at = end;
            self.open.push(open);
        }
        Ok(())
    }

    /// Writes the steps of the open span from the current position to `end`.
    fn write(&mut self, open: &mut Open, end: u64) -> Result<(), UnwindTableError> {
        let mut from = self.at;
        while from < end {
            let next = open.steps.get(open.current + 1).map_or(u64::MAX, |s| s.at);
            if next <= from {
                open.current += 1;
                continue;
            }
            let rule = match open.steps.get(open.current) {
                Some(step) if step.at <= from => step.rule,
                _ => Rule::Unsupported.encode(),
            };
            self.set(from, rule)?;
            from = next.min(end);
            if next <= end {
                open.current += 1;
            }
        }
        Ok(())
    }

    fn set(&mut self, address: u64, rule: EncodedRule) -> Result<(), UnwindTableError> {
        let offset = address - self.segment.address + self.segment.file_offset;
        self.writer.set(offset, rule)
    }
}
