//! Finds the execution context of a thread, by decoding functions that load it first.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use profcol_ebpf_common::interpreter::thread_variable::{ThreadVariable, place as kind};

/// How to find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The file address of the state; 0 if there is none.
    pub state: u64,
    pub variable: ThreadVariable,
}

impl Context {
    fn new(kind: u32, state: u64, offset: u32) -> Self {
        let variable = ThreadVariable {
            place: kind,
            offset,
            table_shift: 0,
        };
        Self { state, variable }
    }
}

/// Bytes of code to decode.
pub const CODE_BYTES: usize = 64;
const MAX_INSTRUCTIONS: usize = 8;

/// The offset of the context in an `rb_thread_t` of 2.7.
const CONTEXT_OF_THREAD: u32 = 32;

/// Since 3.0 the context is in a thread-local variable, which `rb_errinfo` reads.
pub fn by_variable(code: &[u8], address: u64) -> Option<Context> {
    let code = instructions(code, address);
    let mut code = code.iter();
    while let Some(instruction) = code.next() {
        match instruction.mnemonic() {
            // The argument of `__tls_get_addr`: module and offset.
            Mnemonic::Lea if instruction.op0_register() == Register::RDI => {
                code.find(|instruction| instruction.mnemonic() == Mnemonic::Call)?;
                let read = code.next()?;
                let is_read = read.code() == Code::Mov_r64_rm64
                    && read.memory_base() == Register::RAX
                    && read.op1_kind() == OpKind::Memory;
                return is_read.then_some(Context::new(
                    kind::MODULE,
                    place(instruction)?,
                    read.memory_displacement64() as u32,
                ));
            }
            Mnemonic::Mov if instruction.segment_prefix() == Register::FS => {
                let base = instruction.memory_base();
                return (base == Register::None).then_some(Context::new(
                    kind::FIXED,
                    0,
                    instruction.memory_displacement64() as u32,
                ));
            }
            Mnemonic::Mov if let Some(state) = place(instruction) => {
                let read = code.next()?;
                return (read.segment_prefix() == Register::FS).then_some(Context::new(
                    kind::OFFSET,
                    state,
                    read.memory_displacement64() as u32,
                ));
            }
            Mnemonic::Mov if instruction.op1_kind() == OpKind::Immediate32to64 => {
                let read = code.next()?;
                return (read.segment_prefix() == Register::FS).then_some(Context::new(
                    kind::FIXED,
                    0,
                    instruction.immediate32to64() as u32,
                ));
            }
            _ => {}
        }
    }
    None
}

/// 2.7 has one context for the thread that holds the lock; other threads have their own, found by a key
/// that `ruby_native_thread_p` reads.
pub fn by_key(code: &[u8], address: u64) -> Option<Context> {
    let code = instructions(code, address);
    let read = code
        .iter()
        .find(|instruction| instruction.op0_register() == Register::EDI)?;
    let state = place(read)?;
    (read.mnemonic() == Mnemonic::Mov).then(|| Context::new(kind::KEY, state, CONTEXT_OF_THREAD))
}

fn instructions(code: &[u8], address: u64) -> Vec<Instruction> {
    let decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    decoder.into_iter().take(MAX_INSTRUCTIONS).collect()
}

/// The target of a RIP-relative operand.
fn place(instruction: &Instruction) -> Option<u64> {
    instruction
        .is_ip_rel_memory_operand()
        .then(|| instruction.ip_rel_memory_address())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: u64 = 0x1000;

    fn variable(code: &[u8]) -> Option<(u32, u64, u32)> {
        let found = by_variable(code, ADDRESS)?;
        Some((found.variable.place, found.state, found.variable.offset))
    }

    #[test]
    fn finds_a_variable_in_each_tls_model() {
        // sub rsp, 8; lea rdi, [rip + 0x100]; call; mov rax, [rax]; as in 3.1.
        let general_dynamic = [
            0x48, 0x83, 0xec, 0x08, 0x66, 0x48, 0x8d, 0x3d, 0x00, 0x01, 0x00, 0x00, 0x66, 0x66,
            0x48, 0xe8, 0, 0, 0, 0, 0x48, 0x8b, 0x00,
        ];
        assert_eq!(variable(&general_dynamic), Some((kind::MODULE, 0x110c, 0)));
        // With endbr64, and at another offset in the TLS block; as in 3.3.
        let mut other = vec![0xf3, 0x0f, 0x1e, 0xfa];
        other.extend(&general_dynamic[..22]);
        other.extend([0x40, 0x10]);
        assert_eq!(variable(&other), Some((kind::MODULE, 0x1110, 16)));
        // mov rax, fs:[-8]
        let fixed = [0x64, 0x48, 0x8b, 0x04, 0x25, 0xf8, 0xff, 0xff, 0xff];
        assert_eq!(variable(&fixed), Some((kind::FIXED, 0, -8i32 as u32)));
        // mov rax, -16; mov rax, fs:[rax]
        let loaded = [
            0x48, 0xc7, 0xc0, 0xf0, 0xff, 0xff, 0xff, 0x64, 0x48, 0x8b, 0x00,
        ];
        assert_eq!(variable(&loaded), Some((kind::FIXED, 0, -16i32 as u32)));
        // mov rax, [rip + 0x20]; mov rax, fs:[rax]
        let linked = [0x48, 0x8b, 0x05, 0x20, 0, 0, 0, 0x64, 0x48, 0x8b, 0x00];
        assert_eq!(variable(&linked), Some((kind::OFFSET, 0x1027, 0)));
    }

    #[test]
    fn ignores_other_code() {
        // mov rax, [rip + 0x20]; mov rax, [rax]: a global variable, as in 2.7.
        assert_eq!(
            variable(&[0x48, 0x8b, 0x05, 0x20, 0, 0, 0, 0x48, 0x8b, 0x00]),
            None
        );
        assert_eq!(variable(&[0x90; 64]), None);
        assert_eq!(variable(&[]), None);
    }

    #[test]
    fn finds_a_key() {
        // sub rsp, 8; mov edi, [rip + 0x10]; call
        let code = [
            0x48, 0x83, 0xec, 0x08, 0x8b, 0x3d, 0x10, 0, 0, 0, 0xe8, 0, 0, 0, 0,
        ];
        let found = by_key(&code, ADDRESS).map(|found| (found.variable.place, found.state));
        assert_eq!(found, Some((kind::KEY, 0x101a)));
        assert_eq!(by_key(&[0x90; 64], ADDRESS), None);
    }
}
