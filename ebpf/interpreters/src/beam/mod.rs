//! BEAM, the virtual machine of Erlang and Elixir: OTP 25 and 27, with the JIT compiler.
//!
//! Detection uses what `beam.smp` exports for native functions and debuggers, which `strip` keeps, and code that uses the rest: the
//! table of loaded modules, the key of a thread's scheduler, the caller of `process_main`. An address in generated code names its
//! function: the table leads to the module, and its header to functions and lines.

mod atoms;
mod layout;
mod modules;
mod process;

#[cfg(test)]
mod tests;

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use profcol_ebpf_unwind::ElfCode;
use profcol_elf::{Machine, Source};

pub use self::layout::Layout;
pub use self::modules::{BeamFunction, Modules};
pub use self::process::{BeamFiles, BeamRuntime};
use crate::elf_file::{ElfFile, FoundSymbol};
use crate::{Runtime, Unsupported};

const SYMBOLS: [&str; 8] = [
    "etp_otp_release",
    "etp_beamasm",
    "the_active_code_index",
    "beam_normal_exit",
    "erts_atom_table",
    "erts_start_staging_ranges",
    "erts_get_scheduler_data",
    "process_main",
];

/// The runtime in a file. Addresses are before relocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beam {
    pub release: String,
    layout: Layout,
    /// The table of modules, with the code indices behind it.
    modules: u64,
    atoms: u64,
    /// Variable with the address to which the first function of a process returns.
    first_return: u64,
    scheduler_key: u64,
    /// Return address of the call of `process_main`.
    main_return: u64,
    /// Offset in the file = address - this.
    code_delta: u64,
}

const RELEASE_BYTES: usize = 8;
/// Bytes of a function to decode.
const CODE_BYTES: usize = 64;
/// Maximum size of the runtime's code.
const MAX_TEXT_BYTES: u64 = 64 << 20;
/// Offset of the current code index in the table of modules.
const ACTIVE_INDEX: u64 = 100;
const CALL: u8 = 0xe8;
const CALL_BYTES: usize = 5;

impl Beam {
    /// The runtime in a file, if it has one.
    pub fn detect(
        code: &ElfCode,
        source: &(impl Source + ?Sized),
    ) -> Result<Option<Self>, Unsupported> {
        let Some(executable) = ElfFile::read(code, source) else {
            return Ok(None);
        };
        let [
            release,
            with_jit,
            active,
            exit,
            atoms,
            staging,
            scheduler,
            main,
        ] = executable.symbols(SYMBOLS);
        let Some(release) = release.and_then(|symbol| self::release(&executable, symbol)) else {
            return Ok(None);
        };
        let refuse = |why| Unsupported {
            runtime: Runtime::Beam.title(),
            version: release.clone(),
            why,
        };
        let is_jit = with_jit.and_then(|symbol| executable.number(symbol.address));
        if is_jit != Some(1) {
            return Err(refuse("its code is interpreted, not compiled"));
        }
        if executable.machine() == Machine::Aarch64 {
            return Err(refuse("it is not supported on aarch64 yet"));
        }
        let layout = Layout::of_release(&release).map_err(refuse)?;
        let (Some(active), Some(exit), Some(atoms), Some(staging), Some(scheduler), Some(main)) =
            (active, exit, atoms, staging, scheduler, main)
        else {
            return Err(refuse("it does not export its state"));
        };
        let modules = table_of_modules(&executable, staging.address)
            .filter(|table| table.wrapping_add(ACTIVE_INDEX) == active.address)
            .ok_or_else(|| refuse("its table of modules was not found"))?;
        let scheduler_key = scheduler_key(&executable, scheduler.address)
            .ok_or_else(|| refuse("the key of its schedulers was not found"))?;
        let main_return = return_address(&executable, main.address)
            .ok_or_else(|| refuse("the caller of its main function was not found"))?;
        let Some(code_delta) = executable.code_delta(main_return) else {
            return Err(refuse("its code is not in a loaded segment"));
        };
        Ok(Some(Self {
            layout,
            modules,
            atoms: atoms.address,
            first_return: exit.address,
            scheduler_key,
            main_return,
            code_delta,
            release,
        }))
    }

    /// The load bias, from a mapping of the file's code.
    fn bias(&self, mapping_start: u64, mapping_offset: u64) -> u64 {
        let address = mapping_offset.wrapping_add(self.code_delta);
        mapping_start.wrapping_sub(address)
    }
}

/// `25`, from the text for debuggers.
fn release<S: Source + ?Sized>(executable: &ElfFile<'_, S>, symbol: FoundSymbol) -> Option<String> {
    let size = usize::try_from(symbol.size).ok()?.clamp(1, RELEASE_BYTES);
    let bytes = executable.loaded(symbol.address, size)?;
    let digits = bytes
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let text = String::from_utf8(bytes.get(..digits)?.to_vec()).ok()?;
    (!text.is_empty()).then_some(text)
}

/// The function loads its address first.
fn table_of_modules<S: Source + ?Sized>(executable: &ElfFile<'_, S>, function: u64) -> Option<u64> {
    instructions(executable, function)?
        .find(|it| it.mnemonic() == Mnemonic::Lea && it.is_ip_rel_memory_operand())
        .map(|it| it.ip_rel_memory_address())
}

/// The function loads the key as an argument.
fn scheduler_key<S: Source + ?Sized>(executable: &ElfFile<'_, S>, function: u64) -> Option<u64> {
    instructions(executable, function)?
        .find(|it| it.op0_kind() == OpKind::Register && it.op0_register() == Register::EDI)
        .filter(|it| it.mnemonic() == Mnemonic::Mov && it.is_ip_rel_memory_operand())
        .map(|it| it.ip_rel_memory_address())
}

fn instructions<S: Source + ?Sized>(
    executable: &ElfFile<'_, S>,
    function: u64,
) -> Option<impl Iterator<Item = Instruction>> {
    let code = executable.loaded(function, CODE_BYTES)?;
    let mut decoder = Decoder::with_ip(64, &code, function, DecoderOptions::NONE);
    let decoded: Vec<Instruction> = decoder.iter().collect();
    Some(decoded.into_iter())
}

/// The return address of the only call of a function.
fn return_address<S: Source + ?Sized>(executable: &ElfFile<'_, S>, function: u64) -> Option<u64> {
    let mut segments = executable.code.segments.iter();
    let segment = segments.find(|segment| segment.holds(function))?;
    let size = segment.file_end().checked_sub(segment.file_offset)?;
    let size = usize::try_from(size.min(MAX_TEXT_BYTES)).ok()?;
    let text = executable.loaded(segment.address, size)?;
    let calls = memchr::memchr_iter(CALL, &text).filter_map(|at| {
        let distance = text.get(at + 1..at + CALL_BYTES)?;
        let distance = i32::from_le_bytes(*distance.first_chunk()?);
        let after = segment.address.wrapping_add((at + CALL_BYTES) as u64);
        (after.wrapping_add_signed(distance.into()) == function).then_some(after)
    });
    let mut calls = calls.fuse();
    let found = calls.next()?;
    calls.next().is_none().then_some(found)
}
