//! The symbols of an executable.

use std::rc::Rc;

use profcol_debuginfo::ExtractError;
use profcol_elf::{ElfError, Segment, Source};

use crate::companions::Companions;
use crate::dwarf::DebugInfo;
use crate::frame::Frame;
use crate::go::GoTable;
use crate::image::Image;
use crate::table::SymbolTable;

/// Why an address could not be resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// No symbol contains the address.
    NotFound,
    /// The lookup needed too many reads.
    TooMuchWork,
}

pub struct Symbols {
    segments: Vec<Segment>,
    tables: Vec<SymbolTable>,
    go: Option<GoTable>,
    /// Memory of embedded files.
    inner: usize,
    debug: Option<DebugInfo>,
    damage: Option<ElfError>,
}

impl Symbols {
    /// Reads an executable; `companions` are queried for missing DWARF, now and later. Decompresses at most
    /// `max_unpacked` bytes of each file.
    pub fn read(
        source: Rc<dyn Source>,
        companions: Rc<dyn Companions>,
        max_unpacked: u64,
    ) -> Result<Self, ExtractError> {
        let image = Image::read(source, max_unpacked)?;
        let mut symbols = Self {
            segments: image.elf.loaded(0).collect(),
            tables: Vec::new(),
            go: None,
            inner: 0,
            debug: None,
            damage: None,
        };
        symbols.add(&image, &companions);
        if symbols.debug.is_none()
            && let Some(separate) = companions.separate(image.source())
        {
            match Image::read(separate, max_unpacked) {
                Ok(image) => symbols.add(&image, &companions),
                Err(refused) => symbols.damage = Some(refused),
            }
        }
        if symbols.tables.is_empty() && symbols.go.is_none() && symbols.debug.is_none() {
            return Err(symbols
                .damage
                .map_or(ExtractError::NoNames, ExtractError::Elf));
        }
        Ok(symbols)
    }

    /// Adds the symbols of a file; damage to one part does not affect the others.
    fn add(&mut self, image: &Image, companions: &Rc<dyn Companions>) {
        let table = SymbolTable::read(image);
        self.tables.extend(unless_damaged(&mut self.damage, table));
        let debug = DebugInfo::read(image, companions);
        self.debug = unless_damaged(&mut self.damage, debug).or(self.debug.take());
        let go = GoTable::read(image);
        self.go = unless_damaged(&mut self.damage, go).or(self.go.take());
        if self.debug.is_some() {
            return;
        }
        let mini = image.mini();
        if let Some(file) = unless_damaged(&mut self.damage, mini) {
            self.inner += file.len();
            let mini = Image::read(Rc::new(file), image.unpacked_left());
            let table = mini.and_then(|mini| SymbolTable::read(&mini));
            self.tables.extend(unless_damaged(&mut self.damage, table));
        }
    }

    /// Why a part of the file is not used.
    pub fn damage(&self) -> Option<&ElfError> {
        self.damage.as_ref()
    }

    /// Whether it can resolve more than function names.
    pub fn has_lines(&self) -> bool {
        self.debug.is_some()
    }

    /// The link address of a file offset.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let is_in = |it: &&Segment| offset.wrapping_sub(it.file_offset) < it.file_size;
        let segment = self.segments.iter().find(is_in)?;
        (offset - segment.file_offset).checked_add(segment.address)
    }

    /// The frames at an address, innermost first; at least one.
    pub fn find(&mut self, address: u64) -> Result<Vec<Frame>, Unresolved> {
        let mut frames = Vec::new();
        let mut is_exhausted = false;
        if let Some(debug) = &mut self.debug {
            debug.find(address, &mut frames);
            is_exhausted = debug.is_exhausted();
        }
        // DWARF has no functions for assembly.
        if frames
            .last()
            .is_none_or(|outermost| outermost.name.is_empty())
            && let Some(go) = &self.go
            && let go_frames @ [_, ..] = &go.find(address)[..]
        {
            frames = go_frames.to_vec();
        }
        // The higher start address wins: the size of the other symbol may be unknown.
        let rows = self
            .tables
            .iter()
            .filter_map(|table| Some((table.find(address)?, table)));
        let nearest = rows.max_by_key(|(row, _)| row.address);
        let name = nearest.and_then(|(row, table)| table.name(row));
        match (frames.last_mut(), name) {
            // The linkage name is more specific than the name of an entry, which may lack its scope.
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

    /// Estimated memory use.
    pub fn weight(&self) -> usize {
        let tables: usize = self.tables.iter().map(SymbolTable::weight).sum();
        let debug = self.debug.as_ref().map_or(0, DebugInfo::weight);
        size_of::<Self>() + self.inner + tables + debug
    }

    /// Evicts the least recently used data until `limit` is met, or until only data is left that would need the file to
    /// be read again.
    pub fn shrink(&mut self, limit: usize) {
        self.forget_blocks();
        while self.weight() > limit {
            if !self.debug.as_mut().is_some_and(DebugInfo::forget_oldest) {
                self.tables.iter().for_each(SymbolTable::forget_names);
                return;
            }
        }
    }

    /// Frees buffers that only speed up reads.
    pub fn forget_blocks(&self) {
        self.tables.iter().for_each(SymbolTable::forget_blocks);
        if let Some(go) = &self.go {
            go.forget_blocks();
        }
        if let Some(debug) = &self.debug {
            debug.forget_blocks();
        }
    }
}

fn unless_damaged<T>(
    damage: &mut Option<ElfError>,
    part: Result<Option<T>, ElfError>,
) -> Option<T> {
    part.unwrap_or_else(|refused| {
        *damage = Some(refused);
        None
    })
}
