//! The names of one executable's code.

use std::rc::Rc;
use std::sync::Arc;

use profcol_debuginfo::{Refused, Source};

use crate::dwarf::DebugInfo;
use crate::image::{Image, Segment};
use crate::table::SymbolTable;

/// A function at an address, or inlined there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// As the linker sees it; empty where only the line is known.
    pub name: String,
    pub file: Arc<str>,
    pub line: u32,
    pub column: u32,
    /// Where the function is declared.
    pub start_line: u32,
}

/// Why an address has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// Nothing in the file says what is there.
    NotFound,
    /// Too much would have to be read.
    TooMuchWork,
}

pub struct Symbols {
    segments: Vec<Segment>,
    table: Option<SymbolTable>,
    debug: Option<DebugInfo>,
    damage: Option<Refused>,
}

impl Symbols {
    /// Of an executable; where it has no DWARF, `separate` is asked for the file that has it. What is
    /// compressed is not read beyond `max_unpacked` bytes together.
    pub fn read(
        source: Rc<dyn Source>,
        separate: impl FnOnce() -> Option<Rc<dyn Source>>,
        max_unpacked: u64,
    ) -> Result<Self, Refused> {
        let image = Image::read(source, max_unpacked)?;
        let mut symbols = Self {
            segments: image.segments(),
            table: None,
            debug: None,
            damage: None,
        };
        symbols.add(&image);
        if symbols.debug.is_none()
            && let Some(separate) = separate()
        {
            match Image::read(separate, max_unpacked) {
                Ok(image) => symbols.add(&image),
                Err(refused) => symbols.damage = Some(refused),
            }
        }
        if symbols.table.is_none() && symbols.debug.is_none() {
            return Err(symbols.damage.unwrap_or(Refused::NoNames));
        }
        Ok(symbols)
    }

    /// What this file has; damage to one part is no reason to do without the other.
    fn add(&mut self, image: &Image) {
        match SymbolTable::read(image) {
            Ok(Some(table)) => self.table = Some(table),
            Ok(None) => {}
            Err(refused) => self.damage = Some(refused),
        }
        match DebugInfo::read(image) {
            Ok(Some(debug)) => self.debug = Some(debug),
            Ok(None) => {}
            Err(refused) => self.damage = Some(refused),
        }
    }

    /// Why part of the file is not used.
    pub fn damage(&self) -> Option<&Refused> {
        self.damage.as_ref()
    }

    /// Whether there is more to be found than the names of functions.
    pub fn has_lines(&self) -> bool {
        self.debug.is_some()
    }

    /// The address for which this byte of the file was linked.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let is_in = |it: &&Segment| offset.wrapping_sub(it.file_offset) < it.file_size;
        let segment = self.segments.iter().find(is_in)?;
        (offset - segment.file_offset).checked_add(segment.address)
    }

    /// The frames at an address, the innermost first; at least one.
    pub fn find(&mut self, address: u64) -> Result<Vec<Frame>, Unresolved> {
        let mut frames = Vec::new();
        let mut is_exhausted = false;
        if let Some(debug) = &mut self.debug {
            debug.find(address, &mut frames);
            is_exhausted = debug.is_exhausted();
        }
        let name = self.table.as_ref().and_then(|table| table.find(address));
        match (frames.last_mut(), name) {
            // The linker's name says more than that of an entry, which may be without its scope.
            (Some(outermost), Some(name)) => outermost.name = name,
            (None, Some(name)) => frames.push(Frame {
                name,
                ..Frame::default()
            }),
            (_, None) => {}
        }
        match frames.is_empty() {
            true if is_exhausted => Err(Unresolved::TooMuchWork),
            true => Err(Unresolved::NotFound),
            false => Ok(frames),
        }
    }

    /// About how many bytes it holds.
    pub fn weight(&self) -> usize {
        let table = self.table.as_ref().map_or(0, SymbolTable::weight);
        let debug = self.debug.as_ref().map_or(0, DebugInfo::weight);
        size_of::<Self>() + table + debug
    }

    /// Gives up what was not asked for the longest until it holds no more than that, or cannot hold less
    /// without being read again.
    pub fn shrink(&mut self, limit: usize) {
        self.forget_blocks();
        while self.weight() > limit {
            if !self.debug.as_mut().is_some_and(DebugInfo::forget_oldest) {
                return;
            }
        }
    }

    /// Gives up what is only there to read faster.
    pub fn forget_blocks(&self) {
        if let Some(table) = &self.table {
            table.forget_blocks();
        }
        if let Some(debug) = &self.debug {
            debug.forget_blocks();
        }
    }
}
