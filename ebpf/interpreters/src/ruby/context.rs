//! Where a thread has its execution context, by the code of functions that begin with it.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use profcol_ebpf_common::interpreter::ruby::context as kind;
use profcol_elf::Source;

use crate::executable::Executable;

/// How it is found, see [`Layout`](profcol_ebpf_common::interpreter::ruby::Layout).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    pub kind: u32,
    /// Address of the state, as the file has it; 0 without.
    pub state: u64,
    pub offset: u32,
}

/// Code that is looked at.
const CODE_BYTES: usize = 64;
const MAX_INSTRUCTIONS: usize = 8;

/// Of the context in an `rb_thread_t` of 2.7.
const CONTEXT_OF_THREAD: u32 = 32;

/// Of tables of blocks.
const GLIBC_TABLE_SHIFT: u32 = 4;
const MUSL_TABLE_SHIFT: u32 = 3;

/// Since 3.0 it is in a thread-local variable, which `rb_errinfo` reads.
pub fn by_variable<S: Source + ?Sized>(
    executable: &Executable<'_, S>,
    function: u64,
) -> Option<Context> {
    let code = instructions(executable, function)?;
    let mut code = code.iter();
    while let Some(instruction) = code.next() {
        match instruction.mnemonic() {
            // Module and offset are asked for.
            Mnemonic::Lea if instruction.op0_register() == Register::RDI => {
                code.find(|instruction| instruction.mnemonic() == Mnemonic::Call)?;
                let read = code.next()?;
                let is_read = read.code() == Code::Mov_r64_rm64
                    && read.memory_base() == Register::RAX
                    && read.op1_kind() == OpKind::Memory;
                return is_read.then_some(Context {
                    kind: kind::MODULE,
                    state: place(instruction)?,
                    offset: read.memory_displacement64() as u32,
                });
            }
            Mnemonic::Mov if instruction.segment_prefix() == Register::FS => {
                let base = instruction.memory_base();
                return (base == Register::None).then_some(Context {
                    kind: kind::FIXED,
                    state: 0,
                    offset: instruction.memory_displacement64() as u32,
                });
            }
            Mnemonic::Mov if let Some(state) = place(instruction) => {
                let read = code.next()?;
                return (read.segment_prefix() == Register::FS).then_some(Context {
                    kind: kind::OFFSET,
                    state,
                    offset: read.memory_displacement64() as u32,
                });
            }
            Mnemonic::Mov if instruction.op1_kind() == OpKind::Immediate32to64 => {
                let read = code.next()?;
                return (read.segment_prefix() == Register::FS).then_some(Context {
                    kind: kind::FIXED,
                    state: 0,
                    offset: instruction.immediate32to64() as u32,
                });
            }
            _ => {}
        }
    }
    None
}

/// 2.7 has one for the thread that holds the lock; the others have their own with their thread, by a key
/// that `ruby_native_thread_p` reads.
pub fn by_key<S: Source + ?Sized>(
    executable: &Executable<'_, S>,
    function: u64,
) -> Option<Context> {
    let code = instructions(executable, function)?;
    let read = code
        .iter()
        .find(|instruction| instruction.op0_register() == Register::EDI)?;
    (read.mnemonic() == Mnemonic::Mov).then_some(Context {
        kind: kind::KEY,
        state: place(read)?,
        offset: CONTEXT_OF_THREAD,
    })
}

/// Of the C library that the file needs.
pub fn table_shift<S: Source + ?Sized>(executable: &Executable<'_, S>) -> u32 {
    match executable.text_behind(".dynstr", "libc.musl", 0) {
        Some(_) => MUSL_TABLE_SHIFT,
        None => GLIBC_TABLE_SHIFT,
    }
}

fn instructions<S: Source + ?Sized>(
    executable: &Executable<'_, S>,
    function: u64,
) -> Option<Vec<Instruction>> {
    let code = executable.loaded(function, CODE_BYTES)?;
    let decoder = Decoder::with_ip(64, &code, function, DecoderOptions::NONE);
    Some(decoder.into_iter().take(MAX_INSTRUCTIONS).collect())
}

/// What an instruction names by its distance.
fn place(instruction: &Instruction) -> Option<u64> {
    instruction
        .is_ip_rel_memory_operand()
        .then(|| instruction.ip_rel_memory_address())
}
