//! Builds the table from all unwind information of a file.

use gimli::{DebugFrame, EhFrame};
use profcol_ebpf_common::rule::Rule;
use profcol_elf::Source;

use crate::cfi::Frames;
use crate::code::ElfCode;
use crate::overlay::{Decode, Overlay};
use crate::rules::Bytes;
use crate::sections::FrameBytes;
use crate::span::{Origin, Span, Spans};
use crate::table::Table;
use crate::writer::{Step, Writer};
use crate::{UnwindTableError, golang, instructions, leaf_functions, plt, well_known};

impl Table {
    pub fn build(elf: &ElfCode, source: &(impl Source + ?Sized)) -> Result<Self, UnwindTableError> {
        let bytes = FrameBytes::read(elf, source)?;
        let mut info = UnwindInfo::new(elf, source, &bytes)?;
        let spans = info.spans(elf, source)?;
        let mut writer = Writer::new(elf.file_range().start);
        for segment in &elf.segments {
            Overlay::new(segment, &mut info, &mut writer).run(spans.as_slice())?;
        }
        writer.finish(elf.file_range().end)
    }
}

/// All sources of unwind information of a file; if several describe the same code, the first wins.
pub(crate) struct UnwindInfo<'a, S: ?Sized> {
    eh_frame: Option<Frames<'a, EhFrame<Bytes<'a>>>>,
    go: Option<golang::Functions<'a, S>>,
    debug_frame: Option<Frames<'a, DebugFrame<Bytes<'a>>>>,
    fixed: Vec<Rule>,
}

impl<'a, S: Source + ?Sized> UnwindInfo<'a, S> {
    pub fn new(
        elf: &ElfCode,
        source: &'a S,
        bytes: &'a FrameBytes,
    ) -> Result<Self, UnwindTableError> {
        let machine = elf.machine;
        Ok(Self {
            go: golang::Functions::read(elf, source)?,
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

    fn spans(&mut self, elf: &ElfCode, source: &S) -> Result<Spans, UnwindTableError> {
        let code = |spans: Vec<Span>| -> Vec<Span> {
            spans
                .into_iter()
                .filter(|span| elf.segment_at(span.start).is_some())
                .collect()
        };
        let mut spans = Spans::default();
        if let Some(frames) = &mut self.eh_frame {
            let mut found = code(frames.spans()?);
            if elf.is_entered_by_kernel() {
                self.end_at(elf.entry, &mut found);
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
        let stubs = plt::stubs(elf, source);
        spans.fill(code(self.fixed(stubs)));
        let returns = well_known::signal_returns(elf, source, &spans);
        spans.fill(code(self.fixed(returns)));
        let starts = well_known::context_starts(elf, source, &spans);
        spans.fill(code(self.fixed(starts)));
        let derived = instructions::rules(elf, source, &spans);
        spans.fill(code(self.fixed(derived)));
        let leaves = leaf_functions::rules(elf, source, &spans);
        spans.fill(code(self.fixed(leaves)));
        spans.fill(code(self.fixed(well_known::entry(elf))));
        Ok(spans)
    }

    /// Compilers do not know that the entry function has no caller.
    fn end_at(&mut self, entry: u64, spans: &mut [Span]) {
        if let Some(span) = spans.iter_mut().find(|span| span.start == entry) {
            self.fixed.push(Rule::End);
            span.origin = Origin::Fixed(self.fixed.len() as u32 - 1);
        }
    }

    /// Spans with a single rule.
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

impl<S: Source + ?Sized> Decode for UnwindInfo<'_, S> {
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
