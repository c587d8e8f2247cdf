//! Kernel symbols, kept up to date.
//!
//! Modules and BPF programs come and go. Each refresh checks for changes, which costs a small file and a system call;
//! only then does a separate thread reload the symbols, more than a hundred thousand lines.

mod kallsyms;

use std::collections::HashMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder as Thread, JoinHandle};
use std::time::{Duration, Instant};

use profcol_elf::hex;

use self::kallsyms::KernelSymbols;

/// Minimum interval of reloads that are only due to an unresolved address.
const PAUSE: Duration = Duration::from_secs(60);

/// Limit of BPF programs checked per refresh.
const MAX_PROGRAMS: usize = 1 << 16;

/// The file name of the kernel itself.
const KERNEL: &str = "vmlinux";

/// The id of the next BPF program after the given id; `None` if there is none, or for lack of permission.
pub type NextProgram = fn(u32) -> Option<u32>;

pub struct KernelSymbolizer {
    loaded: LoadedSymbols,
    next_program: NextProgram,
    reading: Option<JoinHandle<io::Result<LoadedSymbols>>>,
    read_at: Instant,
    /// Whether an address could not be resolved.
    missed: AtomicBool,
}

/// A resolved kernel address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelFrame<'a> {
    pub function: Option<&'a str>,
    /// `vmlinux`, a module name, or `[unknown]`.
    pub file: &'a str,
    pub build_id: Option<&'a str>,
    /// Relative to the load address of the file, which differs between boots; the address itself if that is unknown.
    pub offset: u64,
}

#[derive(Default)]
struct LoadedSymbols {
    state: State,
    symbols: KernelSymbols,
    build_id: Option<String>,
    modules: HashMap<String, Module>,
}

struct Module {
    start: u64,
    build_id: Option<String>,
}

/// Changes whenever the symbols change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    modules: u64,
    last_program: u32,
}

impl KernelSymbolizer {
    pub fn read(next_program: NextProgram) -> io::Result<Self> {
        let loaded = LoadedSymbols::read(State::now(0, next_program))?;
        Ok(Self::new(loaded, next_program))
    }

    /// For processes without permission to read the symbols.
    pub fn none() -> Self {
        Self::new(LoadedSymbols::default(), |_| None)
    }

    fn new(loaded: LoadedSymbols, next_program: NextProgram) -> Self {
        Self {
            loaded,
            next_program,
            reading: None,
            read_at: Instant::now(),
            missed: AtomicBool::new(false),
        }
    }

    /// Whether the kernel hides its addresses from this process.
    pub fn are_hidden(&self) -> bool {
        self.loaded.symbols.is_hidden()
    }

    pub fn find(&self, address: u64) -> KernelFrame<'_> {
        let frame = self.loaded.find(address);
        if frame.function.is_none() {
            self.missed.store(true, Ordering::Relaxed);
        }
        frame
    }

    /// The address in the running kernel of an offset in a file with this build id: the kernel's or a module's.
    pub fn address_of(&self, build_id: &str, offset: u64) -> Option<u64> {
        let has_id = |id: &Option<String>| id.as_deref() == Some(build_id);
        let start = match has_id(&self.loaded.build_id) {
            true => self.loaded.symbols.text_start(),
            false => {
                let mut modules = self.loaded.modules.values();
                modules.find(|it| has_id(&it.build_id)).map(|it| it.start)
            }
        };
        start?.checked_add(offset)
    }

    /// Starts a reload if something changed; later calls pick up its result.
    pub fn refresh(&mut self) {
        if let Some(reading) = self.reading.take_if(|reading| reading.is_finished()) {
            match reading.join() {
                Ok(Ok(loaded)) => {
                    tracing::debug!(bytes = loaded.symbols.bytes(), "reloaded kernel symbols");
                    self.loaded = loaded;
                }
                Ok(Err(error)) => {
                    tracing::debug!(%error, "failed to reload kernel symbols");
                }
                Err(_) => tracing::error!("The kernel symbol reader panicked."),
            }
        }
        if self.reading.is_some() || self.are_hidden() {
            return;
        }
        let state = State::now(self.loaded.state.last_program, self.next_program);
        let missed = self.missed.load(Ordering::Relaxed) && self.read_at.elapsed() >= PAUSE;
        if state == self.loaded.state && !missed {
            return;
        }
        self.missed.store(false, Ordering::Relaxed);
        self.read_at = Instant::now();
        let thread = Thread::new().name("profcol-symbols".into());
        match thread.spawn(move || LoadedSymbols::read(state)) {
            Ok(reading) => self.reading = Some(reading),
            Err(error) => tracing::debug!(%error, "failed to start the kernel symbol reader"),
        }
    }
}

impl LoadedSymbols {
    fn read(state: State) -> io::Result<Self> {
        let notes = fs::read("/sys/kernel/notes").unwrap_or_default();
        let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
        let symbols = KernelSymbols::read()?;
        Ok(Self {
            state,
            symbols,
            build_id: build_id(&notes),
            modules: modules.lines().filter_map(parse_module).collect(),
        })
    }

    fn find(&self, address: u64) -> KernelFrame<'_> {
        let symbol = self.symbols.find(address);
        let Some(module) = symbol.and_then(|symbol| symbol.module) else {
            let start = self.symbols.text_start().filter(|_| symbol.is_some());
            return KernelFrame {
                function: symbol.map(|symbol| symbol.name),
                file: if symbol.is_some() {
                    KERNEL
                } else {
                    "[unknown]"
                },
                build_id: self.build_id.as_deref().filter(|_| symbol.is_some()),
                offset: address.saturating_sub(start.unwrap_or(0)),
            };
        };
        let loaded_module = self.modules.get(module);
        // BPF programs are not part of a module.
        let start = loaded_module
            .map(|module| module.start)
            .or(symbol.map(|symbol| symbol.start));
        KernelFrame {
            function: symbol.map(|symbol| symbol.name),
            file: module,
            build_id: loaded_module.and_then(|module| module.build_id.as_deref()),
            offset: address.saturating_sub(start.unwrap_or(0)),
        }
    }
}

/// `name size users used_by state 0xaddress`.
fn parse_module(line: &str) -> Option<(String, Module)> {
    let mut words = line.split_ascii_whitespace();
    let name = words.next()?;
    let start = u64::from_str_radix(words.nth(4)?.strip_prefix("0x")?, 16).ok()?;
    let notes = fs::read(format!("/sys/module/{name}/notes/.note.gnu.build-id"));
    let module = Module {
        start,
        build_id: build_id(&notes.unwrap_or_default()),
    };
    (start != 0).then(|| (name.to_owned(), module))
}

/// In hex, from the notes of the kernel or a module.
fn build_id(notes: &[u8]) -> Option<String> {
    Some(hex(&profcol_elf::build_id(notes)?))
}

impl State {
    /// BPF program ids only increase, so checking the ids after the last one suffices.
    fn now(mut last_program: u32, next_program: NextProgram) -> Self {
        for _ in 0..MAX_PROGRAMS {
            match next_program(last_program) {
                Some(next) if next > last_program => last_program = next,
                _ => break,
            }
        }
        // Ignore the use counts of modules, which change all the time.
        let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
        let mut hasher = DefaultHasher::new();
        for line in modules.lines() {
            let mut words = line.split_ascii_whitespace();
            (words.next(), words.nth(4)).hash(&mut hasher);
        }
        Self {
            modules: hasher.finish(),
            last_program,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_relative_to_the_load_address() {
        let text = "ffffffff81000000 T _text\nffffffff81000100 T first\nffffffff81001000 T _etext\n\
                    ffffffffc0000100 t inside\t[module]\nffffffffc1000000 t bpf_prog_1\t[bpf]\n";
        let module = Module {
            start: 0xffffffffc0000000,
            build_id: Some("ab".into()),
        };
        let loaded = LoadedSymbols {
            symbols: KernelSymbols::parse(text.as_bytes()).expect("reads from memory"),
            build_id: Some("cd".into()),
            modules: HashMap::from([("module".to_owned(), module)]),
            ..LoadedSymbols::default()
        };
        let names = KernelSymbolizer::new(loaded, |_| None);
        let check = |address, function, file, build_id, offset| {
            let expected = KernelFrame {
                function,
                file,
                build_id,
                offset,
            };
            assert_eq!(names.find(address), expected);
        };
        check(
            0xffffffff81000123,
            Some("first"),
            "vmlinux",
            Some("cd"),
            0x123,
        );
        check(
            0xffffffffc0000123,
            Some("inside"),
            "module",
            Some("ab"),
            0x123,
        );
        check(0xffffffffc1000003, Some("bpf_prog_1"), "bpf", None, 3);
        assert!(!names.missed.load(Ordering::Relaxed));
        check(
            0xffffffff82000000,
            None,
            "[unknown]",
            None,
            0xffffffff82000000,
        );
        assert!(names.missed.load(Ordering::Relaxed));
    }

    #[test]
    fn parses_a_line_of_the_module_list() {
        let (name, module) =
            parse_module("ext4 700 1 mbcache,jbd2, Live 0xffffffffc0400000").expect("valid");
        assert_eq!((name.as_str(), module.start), ("ext4", 0xffffffffc0400000));
        assert!(parse_module("ext4 700 1 - Live 0x0000000000000000").is_none());
    }
}
