//! The floor: a program on the same clock that does nothing, and one that has the kernel walk frame pointers.
//!
//! They run beside the program that is measured, on clocks of their own, so all three see the same load. The empty one
//! also tells how many ticks there were, and what the kernel's own counting adds to each run.

use anyhow::{Context, Result};
use aya::Ebpf;
use aya::programs::perf_event::{
    PerfEvent, PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent,
};
use object::write::{Object, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, SectionKind, SymbolFlags, SymbolKind, SymbolScope,
};

/// An instruction as the kernel reads it.
struct Instruction {
    code: u8,
    registers: u8,
    value: i32,
}

const fn instruction(code: u8, registers: u8, value: i32) -> Instruction {
    Instruction {
        code,
        registers,
        value,
    }
}

const SET: u8 = 0xb7;
const COPY: u8 = 0xbf;
const ADD: u8 = 0x07;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

const EMPTY: &[Instruction] = &[instruction(SET, 0, 0), instruction(EXIT, 0, 0)];

/// As much as a program's own stack holds: 63 frames.
const STACK_BYTES: i32 = 504;
const USER_STACK: i32 = 1 << 8;
const GET_STACK: i32 = 67;

/// `get_stack(context, stack - 504, 504, USER_STACK)`
const FRAME_POINTERS: &[Instruction] = &[
    instruction(COPY, 0xa2, 0),
    instruction(ADD, 2, -STACK_BYTES),
    instruction(SET, 3, STACK_BYTES),
    instruction(SET, 4, USER_STACK),
    instruction(CALL, 0, GET_STACK),
    instruction(SET, 0, 0),
    instruction(EXIT, 0, 0),
];

/// Both programs, running.
pub struct Floor {
    empty: Ebpf,
    frame_pointers: Ebpf,
}

/// What both ran up to now.
#[derive(Clone, Copy, Debug, Default)]
pub struct FloorCounts {
    pub empty: Runs,
    pub frame_pointers: Runs,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Runs {
    pub count: u64,
    pub nanoseconds: u64,
}

impl Runs {
    pub fn since(self, earlier: Self) -> Self {
        Self {
            count: self.count - earlier.count,
            nanoseconds: self.nanoseconds - earlier.nanoseconds,
        }
    }

    pub fn mean(self) -> f64 {
        self.nanoseconds as f64 / self.count as f64
    }
}

impl Floor {
    pub fn start(frequency: u64) -> Result<Self> {
        Ok(Self {
            empty: start(EMPTY, frequency)?,
            frame_pointers: start(FRAME_POINTERS, frequency)?,
        })
    }

    pub fn counts(&self) -> Result<FloorCounts> {
        Ok(FloorCounts {
            empty: runs(&self.empty)?,
            frame_pointers: runs(&self.frame_pointers)?,
        })
    }
}

const NAME: &str = "floor";

fn start(program: &[Instruction], frequency: u64) -> Result<Ebpf> {
    let mut object = Ebpf::load(&elf(program)?)?;
    let loaded: &mut PerfEvent = object
        .program_mut(NAME)
        .context("the program is missing")?
        .try_into()?;
    loaded.load()?;
    for cpu in aya::util::online_cpus().map_err(|(path, error)| error_at(path, error))? {
        loaded.attach(
            PerfEventConfig::Software(SoftwareEvent::CpuClock),
            PerfEventScope::AllProcessesOneCpu { cpu },
            SamplePolicy::Frequency(frequency),
            false,
        )?;
    }
    Ok(object)
}

fn error_at(path: &str, error: std::io::Error) -> anyhow::Error {
    anyhow::Error::new(error).context(format!("failed to read {path}"))
}

fn runs(object: &Ebpf) -> Result<Runs> {
    let info = object
        .program(NAME)
        .context("the program is missing")?
        .info()?;
    Ok(Runs {
        count: info.run_count(),
        nanoseconds: info.run_time().as_nanos() as u64,
    })
}

fn elf(program: &[Instruction]) -> Result<Vec<u8>> {
    let mut object = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    let mut code = Vec::new();
    for Instruction {
        code: opcode,
        registers,
        value,
    } in program
    {
        code.extend([*opcode, *registers, 0, 0]);
        code.extend(value.to_le_bytes());
    }
    let section = object.add_section(Vec::new(), b"perf_event".to_vec(), SectionKind::Text);
    object.append_section_data(section, &code, 8);
    let license = object.add_section(Vec::new(), b"license".to_vec(), SectionKind::Data);
    object.append_section_data(license, b"GPL\0", 1);
    object.add_symbol(Symbol {
        name: NAME.into(),
        value: 0,
        size: code.len() as u64,
        kind: SymbolKind::Text,
        scope: SymbolScope::Linkage,
        weak: false,
        section: SymbolSection::Section(section),
        flags: SymbolFlags::None,
    });
    object.write().context("failed to write an object")
}
