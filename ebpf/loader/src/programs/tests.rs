//! The compiled BPF objects: structures and maps match the loader, and the kernel verifies each function once.
//! The latter needs the right to load BPF programs.

#![expect(clippy::print_stderr, reason = "reports measurements")]

use std::mem::offset_of;
use std::time::Instant;

use aya::programs::ProgramType;
use aya_obj::Object;
use profcol_ebpf_common::file::TableRef;
use profcol_ebpf_common::identify::Identified;
use profcol_ebpf_common::record::{File, Process, ProcessKey, Sample};
use profcol_ebpf_common::sample_counts::SampleKey;
use profcol_ebpf_common::walk::{CodeMapping, Registers, Walk};
use profcol_test_skip::skip;

use super::*;
use crate::btf::{self, Types};

const SIZES: Sizes = Sizes {
    context_parts: 0,
    table_bytes: 1 << 20,
    files: 64,
    processes: 64,
    ring_bytes: 1 << 16,
    max_frames: 128,
    with_arguments: false,
    namespace: None,
    sample_counts: 64,
};

/// Maximum number of verified instructions, a tenth above the number on Linux 6.18. Without BTF for a function, the
/// verifier processes it again at each call, which is a hundred times as many. Each thousand delays the start by about a
/// millisecond, since the programs of all runtimes are loaded then (decision 27).
const MAX_VERIFIED: [(TableMemory, &str, u32); 4] = [
    (TableMemory::Arena, SAMPLE, 149_500),
    (TableMemory::Arena, IDENTIFY, 4_000),
    // Block programs also walk the VMA trees of older kernels.
    (TableMemory::Blocks, SAMPLE, 160_500),
    (TableMemory::Blocks, IDENTIFY, 7_300),
];

#[test]
fn the_kernel_accepts_the_btf_and_verifies_each_function_once() {
    if let Err(why) = can_load() {
        skip(&why);
        return;
    }
    let layout = btf::kernel_layout().expect("the kernel has BTF");
    for (memory, name, most) in MAX_VERIFIED {
        let started = Instant::now();
        let programs = Programs::load_with(memory, layout, Mappings::Tree, &SIZES)
            .expect("the kernel accepts the programs");
        eprintln!("{memory:?} loaded in {:?}", started.elapsed());
        let program = programs
            .identifier
            .object
            .program(name)
            .expect("is in the object");
        let info = program.info().expect("is loaded");
        assert!(info.btf_id().is_some(), "{name} was loaded without BTF");
        let verified = info.verified_instruction_count();
        eprintln!("{name}: {verified:?} instructions verified");
        assert!(
            verified.is_none_or(|verified| verified <= most),
            "{name}: {verified:?} instructions verified, at most {most} expected"
        );
    }
}

fn can_load() -> Result<(), String> {
    match aya::sys::is_program_supported(ProgramType::PerfEvent) {
        Ok(true) => Ok(()),
        Ok(false) => Err("this kernel does not support BPF programs on perf events".to_owned()),
        Err(error) => Err(format!("BPF programs cannot be loaded here: {error}")),
    }
}

#[test]
fn structures_of_the_object_match_the_loader() {
    // The other object has the same structures, but no BTF for the functions' arguments.
    check_structures(&object(TableMemory::Arena));
}

fn check_structures(object: &Object) {
    let types = object
        .btf
        .as_ref()
        .expect("has type information")
        .to_bytes();
    let types = Types::parse(&types).expect("is sound");
    let check = |structure, member, expected| {
        let found = types
            .structure(structure)
            .and_then(|at| types.member(at, member));
        assert_eq!(found, Some(expected as u64), "{structure}.{member}");
    };
    // Checking the last members catches size changes before them. The frames follow the sample.
    check("Scratch", "frames", size_of::<Sample>());
    check("Sample", "thread_name", offset_of!(Sample, thread_name));
    check(
        "Process",
        "arguments_bytes",
        offset_of!(Process, arguments_bytes),
    );
    check("File", "names_bytes", offset_of!(File, names_bytes));
    check("ProcessKey", "started", offset_of!(ProcessKey, started));
    check("Walk", "exact", offset_of!(Walk, exact));
    check("Registers", "fp", offset_of!(Registers, fp));
    check("CodeMapping", "table", offset_of!(CodeMapping, table));
    check("TableRef", "page_count", offset_of!(TableRef, page_count));
}

#[test]
fn maps_of_the_object_match_the_loader() {
    for memory in [TableMemory::Arena, TableMemory::Blocks] {
        check_maps(&object(memory));
    }
}

fn check_maps(object: &Object) {
    let check = |name, key: usize, value: usize| {
        let map = object.maps.get(name).expect("is in the object");
        let sizes = (map.key_size() as usize, map.value_size() as usize);
        assert_eq!(sizes, (key, value), "{name}");
    };
    check("settings", 4, size_of::<Settings>());
    check("identified", 4, size_of::<Identified>());
    check("counters", 4, size_of::<[u64; COUNTERS]>());
    check("files", size_of::<FileId>(), size_of::<FileEntry>());
    check("free_numbers", 0, 4);
    check("processes", size_of::<ProcessKey>(), 4);
    check(INTERPRETERS, 4, size_of::<Interpreter>());
    check(
        PROCESS_CONTEXTS,
        size_of::<ProcessKey>(),
        size_of::<ProcessContexts>(),
    );
    check(FIRST_COUNTS, size_of::<SampleKey>(), 8);
    check(SECOND_COUNTS, size_of::<SampleKey>(), 8);
}

fn object(memory: TableMemory) -> Object {
    Object::parse(memory.object()).expect("is a BPF object")
}
