//! An ELF file whose sections are read through views.

use std::cell::Cell;
use std::io::{Cursor, Read};
use std::rc::Rc;

use lzma_rust2::XzReader;
use profcol_elf::{Elf, ElfError, Extent, SectionHeader, Source};

use crate::view::{Fuel, Section};

/// Memory limit of the xz decoder, excluding its output: the highest level needs 64 MiB.
const MAX_XZ_KIB: u32 = 96 << 10;

pub struct Image {
    pub elf: Elf,
    pub fuel: Fuel,
    source: Rc<dyn Source>,
    /// Bytes that compressed sections may still expand to.
    unpacked: Cell<u64>,
}

impl Image {
    pub fn read(source: Rc<dyn Source>, max_unpacked: u64) -> Result<Self, ElfError> {
        Self::sharing(Fuel::default(), source, max_unpacked)
    }

    /// All reads of the image burn this fuel.
    pub fn sharing(
        fuel: Fuel,
        source: Rc<dyn Source>,
        max_unpacked: u64,
    ) -> Result<Self, ElfError> {
        Ok(Self {
            elf: Elf::read(&*source)?,
            fuel,
            source,
            unpacked: Cell::new(max_unpacked),
        })
    }

    pub fn source(&self) -> &dyn Source {
        &*self.source
    }

    /// Bytes that may still be decompressed.
    pub fn unpacked_left(&self) -> u64 {
        self.unpacked.get()
    }

    /// The DWARF section with this name, also if its name marks it as compressed.
    pub fn dwarf_section(&self, name: &str) -> Result<Rc<Section>, ElfError> {
        let part = name.strip_prefix(".debug_");
        match part.and_then(|part| self.elf.find_debug(part)) {
            Some(section) => self.section(section),
            None => Ok(Section::in_memory(Vec::new(), self.fuel.clone())),
        }
    }

    pub fn section(&self, section: &SectionHeader) -> Result<Rc<Section>, ElfError> {
        let source = &*self.source;
        let limit = self.unpacked.get();
        if let Some(compressed) = self.elf.compressed(source, section, limit)? {
            let extent = Extent {
                size: compressed.size,
                ..self.elf.extent("a compressed section", section)
            };
            extent.check_size(limit)?;
            self.unpacked.set(limit - extent.size);
            let bytes = compressed.read(source);
            let bytes = bytes.map_err(|error| extent.unreadable(error))?;
            return Ok(Section::in_memory(bytes, self.fuel.clone()));
        }
        let extent = self.elf.extent("a section", section);
        extent.inside(self.elf.length)?;
        let source = Rc::clone(&self.source);
        Ok(Section::in_file(source, extent, self.fuel.clone()))
    }

    /// The small symbol table that some distributions leave in stripped executables, as a file of its own.
    pub fn mini(&self) -> Result<Option<Vec<u8>>, ElfError> {
        let Some(section) = self.elf.find(b".gnu_debugdata") else {
            return Ok(None);
        };
        let most = self.unpacked.get();
        let extent = self.elf.extent("the symbols in .gnu_debugdata", section);
        let packed = extent.read(&*self.source, most)?;
        let mut file = Vec::new();
        let reader = XzReader::new_mem_limit(Cursor::new(packed), false, MAX_XZ_KIB);
        let read = reader.take(most).read_to_end(&mut file);
        read.map_err(|error| extent.unreadable(error))?;
        self.unpacked.set(most - file.len() as u64);
        Ok(Some(file))
    }
}
