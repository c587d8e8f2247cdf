//! The floor: a program on the same clock that does nothing, and one that makes the kernel walk frame pointers.
//!
//! They run at the same time as the measured program, on clocks of their own, so all see the same load. The empty program measures
//! the overhead of the kernel's own counting per run, and a third program counts the ticks on busy CPUs.

use anyhow::{Context, Result};
use aya::Ebpf;
use aya::maps::Array;
use aya::programs::perf_event::{
    PerfEvent, PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent,
};
use object::write::{Object, Relocation, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationFlags, SectionKind, SymbolFlags, SymbolKind,
    SymbolScope,
};

/// An instruction in the kernel's encoding.
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    value: i32,
}

const fn instruction(code: u8, registers: u8, value: i32) -> Instruction {
    at(code, registers, 0, value)
}

const fn at(code: u8, registers: u8, offset: i16, value: i32) -> Instruction {
    Instruction {
        code,
        registers,
        offset,
        value,
    }
}

const SET: u8 = 0xb7;
const COPY: u8 = 0xbf;
const ADD: u8 = 0x07;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const SHIFT_RIGHT: u8 = 0x77;
const JUMP_IF: u8 = 0x15;
const STORE_32: u8 = 0x62;
const ADD_ATOMICALLY: u8 = 0xdb;
/// A 16-byte load of a map address, which the loader fills in.
const SET_MAP: u8 = 0x18;

const EMPTY: &[Instruction] = &[instruction(SET, 0, 0), instruction(EXIT, 0, 0)];

/// As much as fits on a BPF program's stack: 63 frames.
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

const GET_IDS: i32 = 14;
const LOOK_UP: i32 = 1;

/// `if (get_current_pid_tgid() >> 32 != 0) busy[0] += 1`: the idle task has PID 0.
const BUSY: &[Instruction] = &[
    instruction(CALL, 0, GET_IDS),
    instruction(SHIFT_RIGHT, 0, 32),
    at(JUMP_IF, 0, 9, 0),
    at(STORE_32, 10, -4, 0),
    instruction(COPY, 0xa2, 0),
    instruction(ADD, 2, -4),
    instruction(SET_MAP, 1, 0),
    instruction(0, 0, 0),
    instruction(CALL, 0, LOOK_UP),
    at(JUMP_IF, 0, 2, 0),
    instruction(SET, 1, 1),
    at(ADD_ATOMICALLY, 0x10, 0, 0),
    instruction(SET, 0, 0),
    instruction(EXIT, 0, 0),
];

/// An array with a single number: type, key size, value size, length, no flags.
const COUNT: [u32; 5] = [2, 4, 8, 1, 0];

/// The running programs.
pub struct Floor {
    empty: Ebpf,
    frame_pointers: Ebpf,
    busy: Ebpf,
}

/// Counts so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct FloorCounts {
    pub empty: Runs,
    pub frame_pointers: Runs,
    /// Ticks on busy CPUs.
    pub busy: u64,
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
            busy: start(BUSY, frequency)?,
        })
    }

    pub fn counts(&self) -> Result<FloorCounts> {
        Ok(FloorCounts {
            empty: runs(&self.empty)?,
            frame_pointers: runs(&self.frame_pointers)?,
            busy: count(&self.busy)?,
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

fn count(object: &Ebpf) -> Result<u64> {
    let map = object.map(BUSY_MAP).context("the map is missing")?;
    let counts: Array<_, u64> = map.try_into()?;
    Ok(counts.get(&0, 0)?)
}

const BUSY_MAP: &str = "busy";

fn elf(program: &[Instruction]) -> Result<Vec<u8>> {
    let mut object = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    let mut code = Vec::new();
    let mut maps_named = Vec::new();
    for Instruction {
        code: opcode,
        registers,
        offset,
        value,
    } in program
    {
        if *opcode == SET_MAP {
            maps_named.push(code.len() as u64);
        }
        code.extend([*opcode, *registers]);
        code.extend(offset.to_le_bytes());
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
    let maps = object.add_section(Vec::new(), b"maps".to_vec(), SectionKind::Data);
    object.append_section_data(maps, &COUNT.map(u32::to_le_bytes).concat(), 4);
    let map = object.add_symbol(Symbol {
        name: BUSY_MAP.into(),
        value: 0,
        size: size_of_val(&COUNT) as u64,
        kind: SymbolKind::Data,
        scope: SymbolScope::Linkage,
        weak: false,
        section: SymbolSection::Section(maps),
        flags: SymbolFlags::None,
    });
    for offset in maps_named {
        let relocation = Relocation {
            offset,
            symbol: map,
            addend: 0,
            flags: RelocationFlags::Elf {
                r_type: object::elf::R_BPF_64_64,
            },
        };
        object.add_relocation(section, relocation)?;
    }
    object.write().context("failed to write an object")
}
