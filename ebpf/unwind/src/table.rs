//! From the spans of a file to its table.

use crate::cfi::{Bytes, Frames};
use crate::elf::{Executable, Segment};
use crate::sections::FrameBytes;
use crate::span::{Origin, Span, Spans};
use crate::writer::{Step, Writer};
use crate::{Refused, Source, golang, instructions, known, leaves, plt};
use gimli::{DebugFrame, EhFrame};
use profcol_ebpf_common::rule::Rule;
use profcol_ebpf_common::table::{PAGE_SHIFT, Page, Row, Words, search};

/// Entries that begin within each other. Code that was split in hot and cold parts has two.
const MAX_NESTED: usize = 64;

/// The rules of a file's code, as [`profcol_ebpf_common::table`] shows it, with numbers of its own:
/// pages name rows of `rows`, rows name rules of `rules`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Number of the page in the file that the first of `pages` describes.
    pub first_page: u64,
    pub pages: Vec<Page>,
    pub rows: Vec<Row>,
    /// All different.
    pub rules: Vec<Rule>,
}

struct Rows<'a>(&'a [Row]);

impl Words for Rows<'_> {
    fn word(&self, index: u32) -> u32 {
        self.0.get(index as usize).map_or(0, |row| row.0)
    }
}

impl Table {
    pub fn build(
        executable: &Executable,
        source: &(impl Source + ?Sized),
    ) -> Result<Self, Refused> {
        let bytes = FrameBytes::read(executable, source)?;
        let mut authorities = Authorities::new(executable, source, &bytes)?;
        let spans = authorities.spans(executable, source)?;
        let mut writer = Writer::new(executable.code().start);
        for segment in &executable.segments {
            Overlay::new(segment, &mut authorities, &mut writer).run(spans.as_slice())?;
        }
        writer.finish(executable.code().end)
    }

    /// What holds at this offset of the file.
    pub fn lookup(&self, file_offset: u64) -> Rule {
        let page = (file_offset >> PAGE_SHIFT)
            .checked_sub(self.first_page)
            .and_then(|index| self.pages.get(usize::try_from(index).ok()?));
        let Some(page) = page.filter(|page| page.count > 0) else {
            return Rule::Gap;
        };
        search(&Rows(&self.rows), page.rows, page.count, file_offset)
            .and_then(|row| self.rules.get(row.rule() as usize))
            .copied()
            .unwrap_or(Rule::Gap)
    }

    /// What the table takes in memory.
    pub fn bytes(&self) -> usize {
        size_of_val(self.pages.as_slice())
            + size_of_val(self.rows.as_slice())
            + size_of_val(self.rules.as_slice())
    }
}

/// Looks into a span: what holds from its start to `end`.
pub(crate) trait Decode {
    fn steps(&mut self, span: &Span, end: u64, steps: &mut Vec<Step>);
}

/// Everything that says how code of a file unwinds.
pub(crate) struct Authorities<'a, S: ?Sized> {
    eh_frame: Option<Frames<'a, EhFrame<Bytes<'a>>>>,
    go: Option<golang::Functions<'a, S>>,
    debug_frame: Option<Frames<'a, DebugFrame<Bytes<'a>>>>,
    fixed: Vec<Rule>,
}

impl<'a, S: Source + ?Sized> Authorities<'a, S> {
    pub fn new(
        executable: &Executable,
        source: &'a S,
        bytes: &'a FrameBytes,
    ) -> Result<Self, Refused> {
        let machine = executable.machine;
        Ok(Self {
            go: golang::Functions::read(executable, source)?,
            eh_frame: bytes
                .eh_frame
                .as_ref()
                .map(|bytes| Frames::eh_frame(machine, &bytes.content, bytes.bases.clone())),
            debug_frame: bytes
                .debug_frame
                .as_ref()
                .map(|bytes| Frames::debug_frame(machine, bytes)),
            fixed: Vec::new(),
        })
    }

    fn spans(&mut self, executable: &Executable, source: &S) -> Result<Spans, Refused> {
        let code = |spans: Vec<Span>| -> Vec<Span> {
            spans
                .into_iter()
                .filter(|span| executable.segment_at(span.start).is_some())
                .collect()
        };
        let mut spans = Spans::default();
        if let Some(frames) = &mut self.eh_frame {
            let mut found = code(frames.spans()?);
            if executable.is_entered_by_kernel() {
                self.end_at(executable.entry, &mut found);
            }
            spans = Spans::new(found);
        }
        if let Some(functions) = &mut self.go {
            spans.fill(code(functions.spans()));
        }
        if let Some(frames) = &mut self.debug_frame {
            match frames.spans() {
                Ok(found) => spans.fill(code(found)),
                Err(_) if self.eh_frame.is_some() => {}
                Err(refused) => return Err(refused),
            }
        }
        let stubs = plt::stubs(executable, source);
        spans.fill(code(self.fixed(stubs)));
        let returns = known::signal_returns(executable, source, &spans);
        spans.fill(code(self.fixed(returns)));
        let starts = known::context_starts(executable, source, &spans);
        spans.fill(code(self.fixed(starts)));
        let derived = instructions::rules(executable, source, &spans);
        spans.fill(code(self.fixed(derived)));
        let leaves = leaves::rules(executable, source, &spans);
        spans.fill(code(self.fixed(leaves)));
        spans.fill(code(self.fixed(known::entry(executable))));
        Ok(spans)
    }

    /// Compilers do not know that nobody calls the function at the entry.
    fn end_at(&mut self, entry: u64, spans: &mut [Span]) {
        if let Some(span) = spans.iter_mut().find(|span| span.start == entry) {
            self.fixed.push(Rule::End);
            span.origin = Origin::Fixed(self.fixed.len() as u32 - 1);
        }
    }

    /// Rules that hold for the whole of their addresses.
    fn fixed(&mut self, rules: Vec<(u64, u64, Rule)>) -> Vec<Span> {
        rules
            .into_iter()
            .map(|(start, end, rule)| {
                self.fixed.push(rule);
                Span {
                    start,
                    end,
                    origin: Origin::Fixed(self.fixed.len() as u32 - 1),
                }
            })
            .collect()
    }
}

impl<S: Source + ?Sized> Decode for Authorities<'_, S> {
    fn steps(&mut self, span: &Span, end: u64, steps: &mut Vec<Step>) {
        let start = span.start;
        let end = end.min(span.end);
        match span.origin {
            Origin::EhFrame(offset) => {
                if let Some(frames) = &mut self.eh_frame {
                    frames.steps(offset, start, end, steps);
                }
            }
            Origin::Go(number) => {
                if let Some(functions) = &mut self.go {
                    functions.steps(number, start, end, steps);
                }
            }
            Origin::DebugFrame(offset) => {
                if let Some(frames) = &mut self.debug_frame {
                    frames.steps(offset, start, end, steps);
                }
            }
            Origin::Fixed(number) => {
                let rule = self.fixed.get(number as usize).copied();
                steps.push(Step {
                    at: start,
                    rule: rule.unwrap_or(Rule::Gap).encode(),
                });
            }
        }
    }
}

/// Lays the spans of a segment over each other: where they overlap the one with the later start
/// wins, and at its end what was below holds again.
pub(crate) struct Overlay<'s, D> {
    segment: &'s Segment,
    decode: &'s mut D,
    writer: &'s mut Writer,
    /// Everything before is written.
    at: u64,
    open: Vec<Open>,
    /// Emptied steps, to be filled again.
    spare: Vec<Vec<Step>>,
}

/// A span that has begun.
struct Open {
    end: u64,
    steps: Vec<Step>,
    /// The step that holds at the place up to which all is written.
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

    pub fn run(mut self, spans: &[Span]) -> Result<(), Refused> {
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

    fn begin(&mut self, span: &Span) -> Result<(), Refused> {
        let end = span.end.min(self.segment.end());
        while let Some(open) = self.open.pop_if(|open| open.end <= end) {
            self.spare.push(open.steps);
        }
        if self.open.len() >= MAX_NESTED {
            return Err(Refused::Broken {
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

    fn write_until(&mut self, limit: u64) -> Result<(), Refused> {
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

    /// The steps of the open span from where all is written up to `end`.
    fn write(&mut self, open: &mut Open, end: u64) -> Result<(), Refused> {
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

    fn set(
        &mut self,
        address: u64,
        rule: profcol_ebpf_common::rule::EncodedRule,
    ) -> Result<(), Refused> {
        let offset = address - self.segment.address + self.segment.file_offset;
        self.writer.set(offset, rule)
    }
}
