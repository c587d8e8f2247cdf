//! LuaJIT 2.1, builds with 64-bit references (GC64), on x86-64.
//!
//! Detection uses symbols that the runtime exports, which `strip` keeps: `lua_call` leads to the virtual machine,
//! which is written in assembly and has no symbols of its own. Offsets that depend on the build are read from
//! its instructions.

mod calls;
mod function;
mod machine;
mod prototype_bytes;
mod text;

use iced_x86::{Decoder, DecoderOptions, FlowControl};
use profcol_ebpf_common::interpreter::{Interpreter, runtime};
use profcol_ebpf_unwind::Index;
use profcol_elf::{Machine, Source};

pub use self::function::{Prototype, generation};
use self::machine::VirtualMachine;
use crate::detected_interpreter::{DetectedInterpreter, RuntimeLayout};
use crate::elf_file::ElfFile;
use crate::{Runtime, Unsupported};

/// Only LuaJIT has the first one.
const OPEN: &str = "luaopen_jit";
const CALL: &str = "lua_call";
const STACK_SIZE: &str = "lua_gettop";
const VERSION: &str = "LuaJIT 2.";
const VERSION_BYTES: usize = 24;
/// The largest `lua_call` seen has 107 bytes.
const MAX_CALL_BYTES: u64 = 512;
/// Bytes of `lua_gettop` before it returns.
const STACK_SIZE_BYTES: usize = 16;
/// `mov rax, [rdi+0x28]; sub rax, [rdi+0x20]`: the stack's top and base with 64-bit references.
const STACK_SIZE_CODE: [u8; 8] = [0x48, 0x8b, 0x47, 0x28, 0x48, 0x2b, 0x47, 0x20];

pub fn detect<S: Source + ?Sized>(
    executable: &ElfFile<'_, S>,
) -> Result<Option<DetectedInterpreter>, Unsupported> {
    let [open, call, stack_size] = executable.symbols([OPEN, CALL, STACK_SIZE]);
    let (Some(_), Some(call)) = (open, call) else {
        return Ok(None);
    };
    let text = executable.text_behind(".rodata", VERSION, VERSION_BYTES);
    let Some(version) = text.and_then(|text| version_of(&text)) else {
        return Err(unsupported(
            Unsupported::UNKNOWN_VERSION,
            "the version is not in the file",
        ));
    };
    let refuse = |why| unsupported(&version, why);
    if executable.machine() == Machine::Aarch64 {
        return Err(refuse("it is not supported on aarch64 yet"));
    }
    let has_wide_references = stack_size.is_some_and(|it| {
        let code = executable.loaded(it.address, STACK_SIZE_BYTES);
        code.is_some_and(|code| {
            let mut windows = code.windows(STACK_SIZE_CODE.len());
            windows.any(|window| window == STACK_SIZE_CODE)
        })
    });
    if !has_wide_references {
        return Err(refuse(
            "builds with 32-bit references (without GC64) are not supported",
        ));
    }
    let Some(delta) = executable.code_delta(call.address) else {
        return Err(refuse("its code is not in a loaded segment"));
    };
    let Some(machine) = machine(executable, call.address, call.size) else {
        return Err(refuse("its virtual machine was not found"));
    };
    let Some(layout) = machine.layout(delta) else {
        return Err(refuse("its virtual machine is of an unknown build"));
    };
    let offset = |at: u64| at.wrapping_sub(delta);
    let code = offset(machine.range.start)..offset(machine.range.end);
    Ok(Some(DetectedInterpreter {
        runtime: Runtime::LuaJit,
        version,
        loops: Vec::from([code]),
        forwarders: Vec::new(),
        interpreter: Interpreter {
            runtime: runtime::LUAJIT,
            luajit: layout,
            ..Interpreter::default()
        },
        layout: RuntimeLayout::LuaJit,
    }))
}

/// `2.1.0-beta3`, or `2.1.1737090214`.
fn version_of(text: &[u8]) -> Option<String> {
    let is_of_version = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    let length = text.iter().take_while(|&byte| is_of_version(byte)).count();
    let rest = str::from_utf8(text.get(..length)?).ok()?;
    Some(format!("2.{rest}"))
}

/// The virtual machine, to which `lua_call` jumps.
fn machine<S: Source + ?Sized>(
    executable: &ElfFile<'_, S>,
    call: u64,
    size: u64,
) -> Option<VirtualMachine> {
    let size = usize::try_from(size.min(MAX_CALL_BYTES)).ok()?;
    let code = executable.loaded(call, size)?;
    let index = Index::open(executable.code, executable.source).ok()?;
    let own = call..call + size as u64;
    let decoder = Decoder::with_ip(64, &code, call, DecoderOptions::NONE);
    let targets = decoder.into_iter().filter_map(|instruction| {
        let target = match instruction.flow_control() {
            FlowControl::UnconditionalBranch | FlowControl::Call => {
                instruction.near_branch_target()
            }
            _ => return None,
        };
        (target != 0 && !own.contains(&target)).then_some(target)
    });
    targets
        .filter_map(|target| index.function(executable.source, target))
        .find_map(|range| VirtualMachine::read(executable, &index, range))
}

pub fn examples() -> Vec<DetectedInterpreter> {
    vec![DetectedInterpreter {
        runtime: Runtime::LuaJit,
        version: "2.1".to_owned(),
        loops: Vec::new(),
        forwarders: Vec::new(),
        interpreter: Interpreter {
            runtime: runtime::LUAJIT,
            ..Interpreter::default()
        },
        layout: RuntimeLayout::LuaJit,
    }]
}

fn unsupported(version: &str, why: &'static str) -> Unsupported {
    Unsupported {
        runtime: Runtime::LuaJit.title(),
        version: version.into(),
        why,
    }
}
