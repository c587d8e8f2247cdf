//! Finds BEAM in processes.

use std::convert::Infallible;
use std::ops::Range;

use profcol_ebpf_common::interpreter::beam::BeamProcess;
use profcol_ebpf_common::interpreter::hotspot::AddressRange;
use profcol_ebpf_common::interpreter::thread_variable::{ThreadVariable, place};
use profcol_elf::Mapping;

use super::{Beam, BeamFunction, Modules};
use crate::memory::{Memory, ProcessMemory};
use crate::runtime_files::{Attached, RuntimeFiles, code_of};
use crate::{FunctionError, SampledFunction};

const EXECUTABLE: &str = "beam.smp";

/// Maximum number of mappings of generated code; each has some MiB.
const MAX_GENERATED: usize = 1024;
/// The start of generated code, with what all modules share.
const SHARED_CODE_BYTES: usize = 64 << 10;

/// The runtime of a process.
#[derive(Debug)]
pub struct BeamRuntime {
    pub process: BeamProcess,
    modules: Modules,
}

/// The tracked runtime files.
pub type BeamFiles = RuntimeFiles<Beam>;

struct Mappings {
    runtime: Mapping,
    /// At least one.
    generated: Vec<AddressRange>,
}

impl BeamFiles {
    /// Looks for the runtime in a process.
    pub fn attach(&mut self, pid: u32, memory: &ProcessMemory) -> Attached<BeamRuntime> {
        let Some(mappings) = mappings(pid) else {
            return Attached::None;
        };
        let Some(beam) = self.file(pid, &mappings.runtime) else {
            return Attached::None;
        };
        match beam.read(&mappings, memory) {
            Ok(Some(found)) => Attached::Runtime(Box::new(found)),
            Ok(None) => Attached::NotYet,
            Err(error) => {
                tracing::debug!(pid, %error, "failed to read the state of BEAM");
                Attached::NotYet
            }
        }
    }

    fn file(&mut self, pid: u32, mapping: &Mapping) -> Option<Beam> {
        let found = self.get_or_detect(pid, mapping, |code, file| {
            // The loader warned of unsupported ones when it read the file.
            Ok::<_, Infallible>(Beam::detect(code, file).unwrap_or(None))
        });
        let Ok(found) = found;
        found
    }
}

impl Mappings {
    /// A range that contains all generated code.
    fn all_generated(&self) -> AddressRange {
        let starts = self.generated.iter().map(|range| range.start);
        let ends = self.generated.iter().map(|range| range.end);
        AddressRange {
            start: starts.min().unwrap_or_default(),
            end: ends.max().unwrap_or_default(),
        }
    }
}

impl Beam {
    /// Reads the state of a process; None while it is starting.
    fn read(
        &self,
        mappings: &Mappings,
        memory: &impl Memory,
    ) -> Result<Option<BeamRuntime>, FunctionError> {
        let bias = self.bias(mappings.runtime.range.start, mappings.runtime.offset);
        let first_return = memory.word(self.first_return.wrapping_add(bias))?;
        let mut generated = mappings.generated.iter();
        let Some(mapping) = generated.find(|range| range.holds(first_return)) else {
            return Ok(None);
        };
        let table = self.modules.wrapping_add(bias);
        let mut modules = Modules::new(self.layout, table, self.atoms.wrapping_add(bias));
        modules.refresh(memory, None)?;
        let shared = modules.gap(first_return, *mapping);
        let size = usize::try_from(shared.end.saturating_sub(shared.start)).unwrap_or(usize::MAX);
        let code = memory.bytes(shared.start, size.min(SHARED_CODE_BYTES))?;
        let main = ProcessMain::find(&code).ok_or(FunctionError::Invalid(
            "the main function of BEAM has an unknown form",
        ))?;
        let at = |offset: usize| shared.start.wrapping_add(offset as u64);
        Ok(Some(BeamRuntime {
            process: BeamProcess {
                code: mappings.all_generated(),
                shared,
                main: AddressRange {
                    start: at(main.range.start),
                    end: at(main.range.end),
                },
                main_return: self.main_return.wrapping_add(bias),
                first_return,
                modules: table,
                scheduler_key: self.scheduler_key.wrapping_add(bias),
                scheduler: ThreadVariable {
                    place: place::KEY,
                    offset: 0,
                    table_shift: 0,
                },
                main_frame_bytes: main.frame_bytes,
                registers_bias: main.registers_bias,
                scheduler_process: self.layout.scheduler_process,
            },
            modules,
        }))
    }
}

/// The code that starts and ends functions of processes.
struct ProcessMain {
    range: Range<usize>,
    frame_bytes: u32,
    registers_bias: u32,
}

impl ProcessMain {
    /// sub rsp, imm32
    const ALLOCATE: &[u8] = &[0x48, 0x81, 0xec];
    /// and rsp, -64; mov [rdi], rsp
    const ALIGN: &[u8] = &[0x48, 0x83, 0xe4, 0xc0, 0x48, 0x89, 0x27];
    /// lea rbx, [rsp + disp8], and with disp32
    const REGISTERS: &[u8] = &[0x48, 0x8d, 0x5c, 0x24];
    const REGISTERS_FAR: &[u8] = &[0x48, 0x8d, 0x9c, 0x24];
    /// Size of its code, rounded up: the rest of it runs on the stack of a process.
    const BYTES: usize = 0x200;

    /// Finds the main loop: its entry allocates the registers of the scheduler.
    fn find(code: &[u8]) -> Option<Self> {
        let aligned = memchr::memmem::find(code, Self::ALIGN)?;
        let start = aligned.checked_sub(Self::ALLOCATE.len() + 4)?;
        let size = code.get(start..)?.strip_prefix(Self::ALLOCATE)?;
        let rest = code.get(aligned + Self::ALIGN.len()..)?;
        let registers_bias = match rest.strip_prefix(Self::REGISTERS_FAR) {
            Some(rest) => u32::from_le_bytes(*rest.first_chunk()?),
            None => u32::from(*rest.strip_prefix(Self::REGISTERS)?.first()?),
        };
        Some(Self {
            range: start..start + Self::BYTES,
            frame_bytes: u32::from_le_bytes(*size.first_chunk()?),
            registers_bias,
        })
    }
}

/// None if the process does not run BEAM, or has no generated code yet.
fn mappings(pid: u32) -> Option<Mappings> {
    let mut runtime = None;
    let mut generated = Vec::new();
    for mapping in code_of(pid) {
        if mapping.path.ends_with(EXECUTABLE) {
            runtime.get_or_insert(mapping);
        } else if is_generated(&mapping) && generated.len() < MAX_GENERATED {
            generated.push(AddressRange {
                start: mapping.range.start,
                end: mapping.range.end,
            });
        }
    }
    if generated.is_empty() {
        return None;
    }
    Some(Mappings {
        runtime: runtime?,
        generated,
    })
}

/// The JIT compiler maps its code twice, one of them writable.
fn is_generated(mapping: &Mapping) -> bool {
    let name = mapping.path.as_os_str().as_encoded_bytes();
    name.is_empty() || name.starts_with(b"/memfd:")
}

impl BeamRuntime {
    /// Looks at the modules, if the function was sampled with others. Returns their generation if it is new.
    pub fn refresh(
        &mut self,
        memory: &impl Memory,
        sampled: &SampledFunction,
    ) -> Result<Option<u32>, FunctionError> {
        self.modules.refresh(memory, Some(sampled.generation))
    }

    /// Reads the function at a sampled address.
    pub fn function(
        &mut self,
        memory: &impl Memory,
        sampled: &SampledFunction,
    ) -> Result<BeamFunction, FunctionError> {
        let SampledFunction {
            address,
            generation,
            ..
        } = *sampled;
        self.modules.function(memory, address, generation)
    }
}
