//! The code of a file that has unwind information: elsewhere gdb guesses.

use gimli::{BaseAddresses, DebugFrame, EhFrame, LittleEndian, UnwindSection};
use object::{Object, ObjectSection};
use profcol_ebpf_unwind::ElfCode;
use profcol_elf::Source;

/// File ranges.
pub struct ProcessDescription(Vec<(u64, u64)>);

impl ProcessDescription {
    pub fn read(elf: &ElfCode, source: &impl Source) -> Option<Self> {
        let mut bytes = vec![0; source.length().ok()? as usize];
        source.read_at(&mut bytes, 0).ok()?;
        let file = object::File::parse(&*bytes).ok()?;
        let mut addresses = Vec::new();
        if let Some(section) = file.section_by_name(".eh_frame") {
            let bases = BaseAddresses::default().set_eh_frame(section.address());
            let mut frames = EhFrame::new(section.data().ok()?, LittleEndian);
            frames.set_address_size(8);
            add(&frames, &bases, &mut addresses);
        }
        if let Some(section) = file.section_by_name(".debug_frame")
            && let Ok(data) = section.uncompressed_data()
        {
            let mut frames = DebugFrame::new(&data, LittleEndian);
            frames.set_address_size(8);
            add(&frames, &BaseAddresses::default(), &mut addresses);
        }
        let offset = |address: u64| {
            let mut segments = elf.segments.iter();
            let segment =
                segments.find(|segment| (segment.address..segment.end()).contains(&address))?;
            Some(address - segment.address + segment.file_offset)
        };
        let stretches = addresses.into_iter().filter_map(|(start, length)| {
            let start = offset(start)?;
            Some((start, start + length))
        });
        Some(Self(stretches.collect()))
    }

    pub fn has(&self, offset: u64) -> bool {
        self.0
            .iter()
            .any(|&(start, end)| (start..end).contains(&offset))
    }
}

fn add<'b, S>(frames: &S, bases: &BaseAddresses, found: &mut Vec<(u64, u64)>)
where
    S: UnwindSection<gimli::EndianSlice<'b, LittleEndian>>,
    S::Offset: gimli::UnwindOffset,
{
    let mut entries = frames.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        if let gimli::CieOrFde::Fde(partial) = entry
            && let Ok(entry) = partial.parse(S::cie_from_offset)
        {
            found.push((entry.initial_address(), entry.len()));
        }
    }
}
