//! The headers of ELF files of each class and byte order, and the contents of their notes and sections. Nothing is
//! longer than the file or its stated size. Also lists of mappings.

#![cfg_attr(fuzzing, no_main)]

use object::elf::{FileHeader32, FileHeader64};
use object::read::elf::FileHeader;
use object::{BigEndian, Endianness};
use profcol_elf::{DebugLink, Elf, Mappings, Pclntab, build_id};
use profcol_fuzz::fuzz_target;

const LIMIT: u64 = 1 << 20;

fuzz_target!(|data: &[u8]| {
    build_id(data);
    DebugLink::parse(data);
    Pclntab::parse(data);
    mappings(data);
    headers::<FileHeader32<Endianness>>(data);
    headers::<FileHeader64<BigEndian>>(data);
    headers::<FileHeader64<Endianness>>(data);
    let Ok(elf) = Elf::read(data) else {
        return;
    };
    for section in &elf.sections {
        let Ok(Some(compressed)) = elf.compressed(data, section, LIMIT) else {
            continue;
        };
        if compressed.size <= LIMIT
            && let Ok(content) = compressed.read(data)
        {
            assert!(content.len() as u64 <= compressed.size);
        }
    }
    if let Some(link) = elf.find(b".gnu_debuglink")
        && let Ok(link) = elf.content(data, "a link", link, LIMIT)
        && let Some(link) = DebugLink::parse(&link)
    {
        assert!(!link.name.is_empty() && !link.name.contains('/'));
    }
});

fn mappings(data: &[u8]) {
    let lines = data.split(|&byte| byte == b'\n').count();
    let mut found = 0;
    for mapping in Mappings::new(data) {
        let mapping = mapping.expect("the input can be read");
        assert!(mapping.range.start <= mapping.range.end);
        assert!(mapping.path.as_os_str().len() < data.len().min(8 << 10));
        assert!(mapping.file.is_none_or(|file| file.inode != 0));
        found += 1;
    }
    // The last line counts without its end only if it is cut off.
    assert!(found < lines || data.len() > 8 << 10 && found == lines);
}

fn headers<H: FileHeader>(data: &[u8]) {
    let Ok(elf) = Elf::<H>::read_lenient(data) else {
        return;
    };
    let length = data.len() as u64;
    assert_eq!(elf.length, length);
    assert!(size_of_val(&elf.programs[..]) <= data.len());
    assert!(size_of_val(&elf.sections[..]) <= data.len());
    assert!(
        elf.loaded(0)
            .all(|it| it.file_size > 0 && it.file_end() <= length && it.address <= it.end())
    );
    for section in &elf.sections {
        assert!(!elf.name(section).contains(&0));
        let extent = elf.extent("a section", section);
        if let Ok(content) = elf.content(data, "a section", section, LIMIT) {
            assert_eq!(content.len() as u64, extent.size);
        }
    }
    let ids = elf.build_ids(data);
    assert!(ids.gnu.is_none_or(|id| (1..=256).contains(&id.len())));
}
