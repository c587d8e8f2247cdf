//! Finds the unwind rules of code that .NET's JIT compiler wrote.

use profcol_ebpf_common::file::file_number;
use profcol_ebpf_common::interpreter::dotnet::{self, Codes, DotNetProcess, Epilogue, Header};
use profcol_ebpf_common::rule::{EncodedRule, Rule, kind};

use crate::frame_cache::{self, Key};
use crate::interpreter::stage;
use crate::maps::DOTNET_PROCESSES;
use crate::scratch::{Scratch, ScratchHandle};

/// What to do after a step.
enum Next {
    NoRule,
    Rule(EncodedRule),
    /// A step, which may be the same again.
    Stage(u32),
}

/// Whether the current frame may be in code of .NET, and its rule was not found yet.
#[inline(always)]
pub fn may_have_rule(scratch: &mut Scratch) -> bool {
    if scratch.frame.file() != file_number::ANONYMOUS || scratch.rule.kind() != kind::GAP {
        return false;
    }
    if scratch.dotnet_looked_up == 0 {
        scratch.dotnet_looked_up = 1;
        scratch.dotnet_address = 0;
        // SAFETY: plain numbers. The loader may replace them concurrently; each read is checked anyway.
        let known: Option<&DotNetProcess> =
            unsafe { DOTNET_PROCESSES.get(&scratch.sample.process) };
        scratch.dotnet = known.copied().unwrap_or_default();
    }
    if scratch.dotnet_address == scratch.walk.address() {
        scratch.rule = scratch.dotnet_rule;
        return false;
    }
    scratch.dotnet.ranges != 0
}

/// Takes a step towards the rule of the current frame. The verifier explores each step once.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn find_rule(handle: ScratchHandle) -> u32 {
    let Some(scratch) = Scratch::from_handle(handle) else {
        return 0;
    };
    let next = match scratch.interpreter_stage {
        stage::DOTNET_SECTION => find_section(scratch),
        stage::DOTNET_EPILOGUE => read_epilogue(scratch),
        stage::DOTNET_METHOD => find_method(scratch),
        stage::DOTNET_CODES => begin_codes(scratch),
        _ => read_code(scratch),
    };
    let rule = match next {
        Next::Stage(stage) => {
            scratch.interpreter_stage = stage;
            return 0;
        }
        Next::Rule(rule) => rule,
        // The innermost frame may be in a prologue.
        Next::NoRule if scratch.walk.exact != 0 => Rule::Gap.encode(),
        Next::NoRule => Rule::FramePointer.encode(),
    };
    scratch.interpreter_stage = stage::NATIVE;
    let address = scratch.walk.address();
    scratch.dotnet_address = address;
    scratch.dotnet_rule = rule;
    let key = Key::address(address);
    if let Some(slot) = frame_cache::slot(scratch.epoch, scratch.sample.cpu, key) {
        slot.store(scratch.epoch, key, scratch.frame, rule.0);
    }
    0
}

/// Finds the section with the frame's code.
#[inline(always)]
fn find_section(scratch: &mut Scratch) -> Next {
    let (process, address) = (scratch.dotnet, scratch.walk.address());
    let is_exact = scratch.walk.exact != 0;
    let Some(section) = process.section(address, scratch) else {
        return Next::NoRule;
    };
    if section.is_stubs() && is_exact {
        return Next::Rule(dotnet::stub_rule());
    }
    if !section.is_code_heap() {
        return Next::NoRule;
    }
    let Some(search) = process.search(section.heap, address, scratch) else {
        return Next::NoRule;
    };
    scratch.dotnet_search = search;
    scratch.dotnet_epilogue = Epilogue::at(address);
    Next::Stage(match (is_exact, search.start) {
        (true, _) => stage::DOTNET_EPILOGUE,
        (false, 0) => stage::DOTNET_METHOD,
        (false, _) => stage::DOTNET_CODES,
    })
}

/// Reads an instruction, which may be one of an epilogue.
#[inline(always)]
fn read_epilogue(scratch: &mut Scratch) -> Next {
    let mut epilogue = scratch.dotnet_epilogue;
    match epilogue.read(scratch) {
        None => Next::Stage(stage::DOTNET_METHOD),
        Some(false) => {
            scratch.dotnet_epilogue = epilogue;
            Next::Stage(stage::DOTNET_EPILOGUE)
        }
        Some(true) => Next::Rule(epilogue.rule()),
    }
}

/// Searches for the start of the frame's method.
#[inline(always)]
fn find_method(scratch: &mut Scratch) -> Next {
    let process = scratch.dotnet;
    let mut search = scratch.dotnet_search;
    let has_more = process.search_step(&mut search, scratch);
    scratch.dotnet_search = search;
    match (search.start, has_more) {
        (0, true) => Next::Stage(stage::DOTNET_METHOD),
        (0, false) => Next::NoRule,
        _ => Next::Stage(stage::DOTNET_CODES),
    }
}

/// Finds the unwind codes of the frame's method.
#[inline(always)]
fn begin_codes(scratch: &mut Scratch) -> Next {
    let (start, address) = (scratch.dotnet_search.start, scratch.walk.address());
    match dotnet::header(start, scratch) {
        Some(Header::Stub) if scratch.walk.exact != 0 => Next::Rule(dotnet::stub_rule()),
        None | Some(Header::Stub) => Next::NoRule,
        Some(Header::Method(header)) => match Codes::begin(header, start, address, scratch) {
            None => Next::NoRule,
            Some(codes) => {
                scratch.dotnet_codes = codes;
                Next::Stage(stage::DOTNET_CODE)
            }
        },
    }
}

/// Reads an unwind code.
#[inline(always)]
fn read_code(scratch: &mut Scratch) -> Next {
    let mut codes = scratch.dotnet_codes;
    match codes.read(scratch) {
        None => Next::NoRule,
        Some(true) => {
            scratch.dotnet_codes = codes;
            Next::Stage(stage::DOTNET_CODE)
        }
        Some(false) => Next::Rule(codes.rule()),
    }
}
