//! The programs' maps, as far as the walk uses them.

use std::cell::RefCell;

use profcol_ebpf_common::interpreter::beam::BeamProcess;
use profcol_ebpf_common::interpreter::dotnet::DotNetProcess;
use profcol_ebpf_common::interpreter::hotspot::JavaProcess;
use profcol_ebpf_common::interpreter::{Interpreter, RuntimeProcess};
use profcol_ebpf_common::record::{ProcessKey, ThreadKey};
use profcol_ebpf_common::settings::{FRAME_CACHE_SHIFT, Settings};

use crate::frame_cache::CacheEntry;
use crate::kernel_image::LAYOUT;
use crate::stage;

/// Per CPU.
const PLACES: usize = 1 << FRAME_CACHE_SHIFT;

pub struct Places;

pub static FRAME_CACHE: Places = Places;

thread_local! {
    static MEMORY: RefCell<Vec<CacheEntry>> = const { RefCell::new(Vec::new()) };
}

impl Places {
    pub fn get_ptr_mut(&self, index: u32) -> Option<*mut CacheEntry> {
        MEMORY.with_borrow_mut(|places| places.get_mut(index as usize).map(|place| &raw mut *place))
    }
}

pub fn forget() {
    MEMORY.with_borrow_mut(|places| {
        places.clear();
        places.resize_with(PLACES, nothing);
    });
}

/// Zeroed, like a new map in the kernel.
fn nothing() -> CacheEntry {
    // SAFETY: all fields are integers.
    unsafe { std::mem::zeroed() }
}

/// A single interpreter, for every file that has an interpreter loop.
pub struct Interpreters;

pub static INTERPRETERS: Interpreters = Interpreters;

impl Interpreters {
    /// # Safety
    ///
    /// None: matches the signature that the programs call.
    pub unsafe fn get(&self, _: &u32) -> Option<&'static Interpreter> {
        stage::with(|process| process.interpreter)
    }
}

/// Cached thread states.
pub struct Threads;

pub static PYTHON_THREADS: Threads = Threads;

impl Threads {
    /// # Safety
    ///
    /// None: matches the signature that the programs call.
    pub unsafe fn get(&self, _: &ThreadKey) -> Option<&'static u64> {
        stage::with(|process| process.known_thread)
    }

    pub fn insert(&self, _: &ThreadKey, _: &u64, _: u64) -> Result<(), i64> {
        Ok(())
    }
}

/// The V8 files of processes.
pub struct V8Files;

pub static V8_FILES: V8Files = V8Files;

impl V8Files {
    /// # Safety
    ///
    /// None: matches the signature that the programs call.
    pub unsafe fn get(&self, _: &ProcessKey) -> Option<&'static u32> {
        stage::with(|process| process.v8_file)
    }

    pub fn insert(&self, _: &ProcessKey, _: &u32, _: u64) -> Result<(), i64> {
        Ok(())
    }
}

/// The Ruby or PHP state of processes.
pub struct RuntimeProcesses;

pub static RUNTIME_PROCESSES: RuntimeProcesses = RuntimeProcesses;

impl RuntimeProcesses {
    /// # Safety
    ///
    /// None: matches the signature that the programs call.
    pub unsafe fn get(&self, _: &ProcessKey) -> Option<&'static RuntimeProcess> {
        stage::with(|process| process.runtime)
    }

    pub fn insert(&self, _: &ProcessKey, _: &RuntimeProcess, _: u64) -> Result<(), i64> {
        Ok(())
    }
}

/// The Java state of processes.
pub struct JavaProcesses;

pub static JAVA_PROCESSES: JavaProcesses = JavaProcesses;

impl JavaProcesses {
    /// # Safety
    ///
    /// None: matches the signature that the programs call.
    pub unsafe fn get(&self, _: &ProcessKey) -> Option<&'static JavaProcess> {
        stage::with(|process| process.java)
    }
}

/// The state of BEAM in processes.
pub struct BeamProcesses;

pub static BEAM_PROCESSES: BeamProcesses = BeamProcesses;

impl BeamProcesses {
    /// # Safety
    ///
    /// None: matches the signature that the programs call.
    pub unsafe fn get(&self, _: &ProcessKey) -> Option<&'static BeamProcess> {
        stage::with(|process| process.beam)
    }
}

/// The state of .NET in processes.
pub struct DotNetProcesses;

pub static DOTNET_PROCESSES: DotNetProcesses = DotNetProcesses;

impl DotNetProcesses {
    /// # Safety
    ///
    /// None: matches the signature that the programs call.
    pub unsafe fn get(&self, _: &ProcessKey) -> Option<&'static DotNetProcess> {
        stage::with(|process| process.dotnet)
    }
}

pub fn count(_: u32) {}

pub fn settings() -> Option<&'static Settings> {
    static SETTINGS: Settings = Settings {
        layout: LAYOUT,
        arena: 0,
        rules_offset: 0,
        max_frames: u32::MAX,
        with_arguments: 0,
        namespace_inode: 0,
        namespace_device: 0,
        address_bits: u64::MAX,
        page_shift: 12,
        count_buffer: 0,
        mappings: 0,
        context_parts: 0,
        unused: 0,
        user_regs_offset: 0,
    };
    Some(&SETTINGS)
}
