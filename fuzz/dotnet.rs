//! Assemblies, as files and as loaded images: each name, each method's native code and its IL offsets. PDBs, debug
//! information and single-file programs.

#![cfg_attr(fuzzing, no_main)]

use profcol_dotnet::{
    Assembly, Bundle, DebugInfoFormat, DotNetError, IlMap, ImageLayout, Part, PortablePdb,
};
use profcol_elf::Source;
use profcol_fuzz::fuzz_target;

/// A full name, and a path.
const MAX_NAME: usize = 8 << 10;
const METHODS: u32 = 100;

fuzz_target!(|data: &[u8]| {
    for layout in [ImageLayout::File, ImageLayout::Loaded] {
        let _ = image(data, layout);
    }
    let _ = bundle(data);
    for format in [
        DebugInfoFormat::ReadyToRun(9),
        DebugInfoFormat::ReadyToRun(16),
        DebugInfoFormat::ReadyToRun(17),
        DebugInfoFormat::Jit(6),
        DebugInfoFormat::Jit(9),
        DebugInfoFormat::Jit(10),
    ] {
        if let Ok(map) = IlMap::read(data, format) {
            let size = IlMap::size(data, format).expect("readable");
            assert!(size.is_some_and(|size| size <= data.len() as u64));
            assert!(map.bounds().is_sorted_by_key(|&(native, _)| native));
            map.il_offset(12);
        }
    }
    if let Some((id, file)) = data.split_first_chunk() {
        let _ = pdb(&file, id);
    }
});

fn image(file: &(impl Source + ?Sized), layout: ImageLayout) -> Result<(), DotNetError> {
    let assembly = Assembly::read(file, layout)?;
    if let Ok(name) = assembly.name(file) {
        assert!(name.len() <= MAX_NAME);
    }
    for row in 0..=assembly.methods().min(METHODS) {
        if let Ok(name) = assembly.method(file, row) {
            assert!(name.len() <= MAX_NAME);
        }
    }
    if let Ok(directory) = assembly.debug_directory(file)
        && let Some(id) = directory.pdb_id
        && let Ok(Some(embedded)) = directory.embedded_pdb(file)
    {
        let _ = pdb(&&embedded[..], &id);
    }
    let Some(code) = assembly.ready_to_run(file)? else {
        return Ok(());
    };
    let mut end = 0;
    for method in code.methods() {
        assert!(end <= method.start && method.start < method.end);
        end = method.end;
        assert_eq!(code.method_at(method.start), Some(method));
        assert_eq!(code.method_at(method.end - 1), Some(method));
        if let Some(token) = method.token
            && let Ok(name) = assembly.method_by_token(file, token)
        {
            assert!(name.len() <= MAX_NAME);
        }
        let _ = code.il_map(file, &method);
    }
    Ok(())
}

fn pdb(file: &impl Source, id: &[u8; 20]) -> Result<(), DotNetError> {
    let pdb = PortablePdb::read(file, id)?;
    for method in 0..METHODS {
        for line in [pdb.first_line(file, method), pdb.line(file, method, 12)] {
            if let Ok(Some(line)) = line {
                assert!(line.document.len() <= MAX_NAME);
            }
        }
    }
    Ok(())
}

fn bundle(data: &[u8]) -> Result<(), DotNetError> {
    let Some(bundle) = Bundle::read(data)? else {
        return Ok(());
    };
    for file in bundle.files() {
        assert!(file.offset + file.size <= data.len() as u64);
        let part = Part {
            source: data,
            offset: file.offset,
            size: file.size,
        };
        let _ = image(&part, ImageLayout::File);
    }
    Ok(())
}
