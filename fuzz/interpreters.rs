//! Files that claim to contain an interpreter or contexts of threads, and the functions and variables of processes with arbitrary memory.

#![cfg_attr(fuzzing, no_main)]

use std::io;

use profcol_ebpf_interpreters::beam;
use profcol_ebpf_interpreters::context::{self, CLibrary, ContextFile};
use profcol_ebpf_interpreters::dotnet::{self, CodeReader, DotNetRuntime};
use profcol_ebpf_interpreters::{
    DetectedInterpreter, Memory, MemoryError, ProcessCache, SampledFunction, detect,
};
use profcol_ebpf_unwind::ElfCode;
use profcol_fuzz::fuzz_target;

/// No process stores more per function: names of 1,024 characters, and its lines.
const MAX_BYTES: usize = 1 << 20;

/// The input repeated, with holes.
struct AnyMemory<'a>(&'a [u8]);

impl Memory for AnyMemory<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), MemoryError> {
        assert!(buffer.len() <= MAX_BYTES);
        let is_past_the_end = address.checked_add(buffer.len() as u64).is_none();
        if self.0.is_empty() || is_past_the_end || address >> 12 & 7 == 7 {
            let error = io::ErrorKind::InvalidInput.into();
            return Err(MemoryError { address, error });
        }
        for (place, at) in buffer.iter_mut().zip(address..) {
            *place = self.0[(at % self.0.len() as u64) as usize];
        }
        Ok(())
    }
}

fuzz_target!(|data: &[u8]| {
    if let Ok(code) = ElfCode::read(data)
        && let Ok(Some(interpreter)) = detect(&code, data)
    {
        read(&interpreter, data);
    }
    if let Ok(code) = ElfCode::read(data) {
        read_contexts(&code, data);
    }
    for example in DetectedInterpreter::examples() {
        read(&example, data);
    }
    read_modules(data);
    read_methods(data);
});

/// The contexts of threads.
fn read_contexts(code: &ElfCode, data: &[u8]) {
    let _ = context::detect(code, data);
    let Ok(Some(ContextFile::Library(library))) = ContextFile::read(code, data) else {
        return;
    };
    let memory = AnyMemory(data);
    for c_library in [CLibrary::Glibc, CLibrary::Musl] {
        for bias in [0, 1 << 44] {
            let located = library.locate(bias, c_library, &memory);
            assert!(located.count() <= 2);
        }
    }
}

/// The methods of .NET.
fn read_methods(data: &[u8]) {
    let (words, rest) = data.split_at_checked(24).unwrap_or_default();
    let (words, _) = words.as_chunks();
    let [ranges, address, other] = *words else {
        return;
    };
    let [ranges, address, other] = [ranges, address, other].map(u64::from_le_bytes);
    let memory = AnyMemory(rest);
    for layout in dotnet::Layout::all() {
        // No process has this PID, so there are no files beside its program.
        let mut runtime = DotNetRuntime::new(*layout, ranges, 0);
        for address in [address, other] {
            if let Ok(function) = runtime.function(&memory, address) {
                assert!(function.bytes() <= MAX_BYTES);
            }
        }
        // Most input has no code at an address: what follows from it.
        let reader = CodeReader {
            layout,
            process: runtime.process,
            memory: &memory,
        };
        let _ = reader.describe(address & !7);
        let _ = reader.image(other);
    }
}

/// The modules of BEAM.
fn read_modules(data: &[u8]) {
    let (words, rest) = data.split_at_checked(24).unwrap_or_default();
    let (words, _) = words.as_chunks();
    let [table, atoms, address] = *words else {
        return;
    };
    let [table, atoms, address] = [table, atoms, address].map(u64::from_le_bytes);
    let memory = AnyMemory(rest);
    for release in ["25", "27"] {
        let Ok(layout) = beam::Layout::of_release(release) else {
            continue;
        };
        let mut modules = beam::Modules::new(layout, table, atoms);
        for generation in [None, Some(0)] {
            let _ = modules.refresh(&memory, generation);
            if let Ok(function) = modules.function(&memory, address, 0) {
                assert!(function.name.chars().count() <= 1024);
                assert!(function.file.chars().count() <= 1024);
            }
        }
    }
}

fn read(interpreter: &DetectedInterpreter, data: &[u8]) {
    let (address, rest) = data.split_at_checked(8).unwrap_or_default();
    let address = address
        .first_chunk()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let memory = AnyMemory(rest);
    let generation = interpreter
        .generation(&memory, address, address.rotate_left(8))
        .unwrap_or(0);
    let mut cache = ProcessCache::default();
    for code_address in [0, address.rotate_left(8)] {
        let sampled = SampledFunction {
            runtime: interpreter.interpreter.runtime,
            address,
            generation,
            code_address,
        };
        let Ok(function) = interpreter.function(&memory, &mut cache, &sampled) else {
            continue;
        };
        for position in [0, 1, u32::MAX] {
            for frame in function.frames(position) {
                assert!(frame.name.chars().count() <= 1024);
            }
        }
    }
}
