//! The inlined calls of a function.
//!
//! Scopes are nested ranges. They are flattened to consecutive segments, each with its innermost scope, so that a
//! lookup is a binary search; overlapping scopes, which only occur in damaged files, are harmless.

use std::collections::BinaryHeap;

use gimli::{AttributeValue, Dwarf, Unit, UnitOffset};

use super::ranges::Bounds;
use crate::view::View;

/// Scopes per function, and ranges of all its scopes.
const MAX_SCOPES: usize = 1 << 20;

#[derive(Default)]
pub struct Scopes {
    scopes: Vec<Scope>,
    /// The start of each segment and its scope.
    segments: Vec<(u64, u32)>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Scope {
    /// The entry that provides the name.
    pub entry: usize,
    /// The call site in the parent scope.
    pub call_file: u64,
    pub call_line: u32,
    pub call_column: u32,
    parent: Option<u32>,
}

/// A range of a scope with its nesting depth.
struct Nested {
    begin: u64,
    end: u64,
    depth: u32,
    scope: u32,
}

impl Scopes {
    /// Reads as much of the function's entry as possible.
    pub fn read(dwarf: &Dwarf<View>, unit: &Unit<View>, function: usize) -> Self {
        let mut scopes = Self {
            scopes: vec![Scope {
                entry: function,
                ..Scope::default()
            }],
            segments: Vec::new(),
        };
        let mut nested = Vec::new();
        let _damage = scopes.gather(dwarf, unit, function, &mut nested);
        scopes.segments = segments(nested);
        scopes
    }

    fn gather(
        &mut self,
        dwarf: &Dwarf<View>,
        unit: &Unit<View>,
        function: usize,
        nested: &mut Vec<Nested>,
    ) -> gimli::Result<()> {
        let mut entries = unit.entries_raw(Some(UnitOffset(function)))?;
        let Some(root) = entries.read_abbreviation()? else {
            return Ok(());
        };
        entries.skip_attributes(root.attributes())?;
        // The enclosing inlined functions by depth.
        let mut around: Vec<(isize, u32)> = Vec::new();
        // Entries below this depth belong to a nested function.
        let mut foreign: Option<isize> = None;
        while !entries.is_empty() && entries.next_depth() > 0 && self.scopes.len() < MAX_SCOPES {
            let depth = entries.next_depth();
            let offset = entries.next_offset();
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            while around.last().is_some_and(|(outer, _)| *outer >= depth) {
                around.pop();
            }
            if foreign.is_some_and(|outer| depth <= outer) {
                foreign = None;
            }
            let tag = abbreviation.tag();
            if foreign.is_some() || tag != gimli::DW_TAG_inlined_subroutine {
                if foreign.is_none() && tag == gimli::DW_TAG_subprogram {
                    foreign = Some(depth);
                }
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            let number = self.scopes.len() as u32;
            let mut scope = Scope {
                entry: offset.0,
                parent: Some(around.last().map_or(0, |(_, scope)| *scope)),
                ..Scope::default()
            };
            let mut bounds = Bounds::default();
            for &specification in abbreviation.attributes() {
                let attribute = entries.read_attribute(specification)?;
                let value = attribute.value();
                let number = || value.udata_value().and_then(|it| u32::try_from(it).ok());
                match attribute.name() {
                    gimli::DW_AT_call_file => {
                        scope.call_file = match value {
                            AttributeValue::FileIndex(file) => file,
                            _ => value.udata_value().unwrap_or(0),
                        };
                    }
                    gimli::DW_AT_call_line => scope.call_line = number().unwrap_or(0),
                    gimli::DW_AT_call_column => scope.call_column = number().unwrap_or(0),
                    name => bounds.note(name, value),
                }
            }
            self.scopes.push(scope);
            around.push((depth, number));
            let depth = around.len() as u32;
            bounds.each(dwarf, unit, |begin, end| {
                if nested.len() < MAX_SCOPES {
                    nested.push(Nested {
                        begin,
                        end,
                        depth,
                        scope: number,
                    });
                }
            });
        }
        Ok(())
    }

    /// The scopes at an address, innermost first; the last is the function itself.
    pub fn at(&self, address: u64) -> impl Iterator<Item = Scope> {
        let after = self
            .segments
            .partition_point(|(begin, _)| *begin <= address);
        let segment = after.checked_sub(1).and_then(|it| self.segments.get(it));
        let mut next = Some(segment.map_or(0, |(_, scope)| *scope));
        std::iter::from_fn(move || {
            let scope = *self.scopes.get(next? as usize)?;
            next = scope.parent;
            Some(scope)
        })
    }

    pub fn weight(&self) -> usize {
        self.scopes.capacity() * size_of::<Scope>()
            + self.segments.capacity() * size_of::<(u64, u32)>()
    }
}

/// The addresses where the innermost scope changes.
fn segments(mut nested: Vec<Nested>) -> Vec<(u64, u32)> {
    nested.sort_unstable_by_key(|range| (range.begin, range.depth, range.scope));
    let mut sweep = Sweep::default();
    for range in nested {
        sweep.close_up_to(range.begin);
        sweep.open.push((range.depth, range.scope, range.end));
        sweep.set(range.begin);
    }
    sweep.close_up_to(u64::MAX);
    sweep.segments.shrink_to_fit();
    sweep.segments
}

#[derive(Default)]
struct Sweep {
    /// Depth, scope and end of the open ranges, deepest on top.
    open: BinaryHeap<(u32, u32, u64)>,
    segments: Vec<(u64, u32)>,
}

impl Sweep {
    /// From here on the deepest open range is the innermost scope.
    fn set(&mut self, at: u64) {
        let scope = self.open.peek().map_or(0, |&(_, scope, _)| scope);
        match self.segments.last_mut() {
            Some((begin, last)) if *begin == at => *last = scope,
            Some((_, last)) if *last == scope => {}
            _ => self.segments.push((at, scope)),
        }
    }

    fn close_up_to(&mut self, limit: u64) {
        while let Some(&(_, _, end)) = self.open.peek()
            && end <= limit
        {
            // Ranges that ended earlier cannot become the innermost again.
            while self.open.peek().is_some_and(|&(_, _, it)| it <= end) {
                self.open.pop();
            }
            self.set(end);
        }
    }
}
