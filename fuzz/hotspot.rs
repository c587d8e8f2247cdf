//! The tables, the code cache and the methods of a JVM with arbitrary memory.

#![cfg_attr(fuzzing, no_main)]

use std::io;

use profcol_ebpf_common::interpreter::runtime;
use profcol_ebpf_interpreters::hotspot::{Code, HotSpot, Layout};
use profcol_ebpf_interpreters::{Memory, MemoryError};
use profcol_fuzz::fuzz_target;

/// Where the seeds begin.
const BASE: u64 = 0x10_0000;
/// No name, and no part of a method, is larger.
const MAX_READ: usize = 1 << 20;
const MAX_FRAMES: usize = 64;

struct Image<'a>(&'a [u8]);

impl Memory for Image<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), MemoryError> {
        assert!(buffer.len() <= MAX_READ);
        let start = address.checked_sub(BASE).map(|start| start as usize);
        let bytes = start.and_then(|start| self.0.get(start..start.checked_add(buffer.len())?));
        let bytes = bytes.ok_or_else(|| MemoryError {
            address,
            error: io::ErrorKind::UnexpectedEof.into(),
        })?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }
}

fuzz_target!(|data: &[u8]| {
    let (words, memory) = data.split_at_checked(15 * 8).unwrap_or_default();
    let mut words = words
        .as_chunks()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word));
    let mut next = || words.next().unwrap_or_default();
    let exports = std::array::from_fn(|_| next());
    let bias = next();
    let hotspot = HotSpot::with_exports(exports);
    let memory = Image(memory);
    let Ok(Some(layout)) = Layout::read(&hotspot, &memory, bias) else {
        return;
    };
    let _ = layout.code_cache(&memory, bias);
    let (method, cookie) = (next(), next() as u32);
    let (nmethod, compile_id) = (next(), next() as u32);
    for (kind, address, generation) in [
        (runtime::HOTSPOT_INTERPRETED, method, cookie),
        (runtime::HOTSPOT_COMPILED, nmethod, compile_id),
        (runtime::HOTSPOT_STUB, nmethod, 0),
    ] {
        let Ok(code) = Code::read(&layout, &memory, bias, kind, address, generation) else {
            continue;
        };
        for position in [0, 9, 16, u32::MAX] {
            let frames = code.frames(position);
            assert!((1..=MAX_FRAMES).contains(&frames.len()));
        }
    }
});
