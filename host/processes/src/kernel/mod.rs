//! Names for addresses in the kernel, kept up to date.
//!
//! Modules and BPF programs come and go. So at each interval it is asked whether they did, which
//! costs a small file and a system call; only then are the symbols read again, on a thread of their
//! own, since there are more than a hundred thousand lines of them.

mod kallsyms;

use std::collections::HashMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder as Thread, JoinHandle};
use std::time::{Duration, Instant};

use self::kallsyms::KernelSymbols;

/// Where an address has no name although nothing is known to have changed, the symbols are read
/// again no more often than this.
const PAUSE: Duration = Duration::from_secs(60);

/// More BPF programs are not looked at in one go.
const MAX_PROGRAMS: usize = 1 << 16;

/// The file of the kernel itself.
const KERNEL: &str = "vmlinux";

/// The number of the BPF program that was loaded next after that of this number; `None` where there is none, or
/// who asks may not know.
pub type NextProgram = fn(u32) -> Option<u32>;

pub struct KernelNames {
    known: LoadedSymbols,
    next_program: NextProgram,
    reading: Option<JoinHandle<io::Result<LoadedSymbols>>>,
    read_at: Instant,
    /// An address had no name.
    missed: AtomicBool,
}

/// An address in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelFrame<'a> {
    pub function: Option<&'a str>,
    /// `vmlinux`, the name of a module, or `[unknown]`.
    pub file: &'a str,
    pub build_id: Option<&'a str>,
    /// From where the file was put, which differs from boot to boot; the address itself where that
    /// is not known.
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

/// What changes with the symbols.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    modules: u64,
    last_program: u32,
}

impl KernelNames {
    pub fn read(next_program: NextProgram) -> io::Result<Self> {
        let known = LoadedSymbols::read(State::now(0, next_program))?;
        Ok(Self::new(known, next_program))
    }

    /// For who may not read them.
    pub fn none() -> Self {
        Self::new(LoadedSymbols::default(), |_| None)
    }

    fn new(known: LoadedSymbols, next_program: NextProgram) -> Self {
        Self {
            known,
            next_program,
            reading: None,
            read_at: Instant::now(),
            missed: AtomicBool::new(false),
        }
    }

    /// Whether the kernel hides its addresses from this process.
    pub fn are_hidden(&self) -> bool {
        self.known.symbols.is_hidden()
    }

    pub fn find(&self, address: u64) -> KernelFrame<'_> {
        let found = self.known.find(address);
        if found.function.is_none() {
            self.missed.store(true, Ordering::Relaxed);
        }
        found
    }

    /// The address at this boot of a place in the kernel or in one of its modules, by the build id of the file.
    pub fn address_of(&self, build_id: &str, offset: u64) -> Option<u64> {
        let is_it = |known: &Option<String>| known.as_deref() == Some(build_id);
        let start = match is_it(&self.known.build_id) {
            true => self.known.symbols.text_start(),
            false => {
                let mut modules = self.known.modules.values();
                modules.find(|it| is_it(&it.build_id)).map(|it| it.start)
            }
        };
        start?.checked_add(offset)
    }

    /// Looks whether something changed; what is read then is there some time later.
    pub fn keep_up(&mut self) {
        if let Some(reading) = self.reading.take_if(|reading| reading.is_finished()) {
            match reading.join() {
                Ok(Ok(known)) => {
                    tracing::debug!(bytes = known.symbols.bytes(), "reloaded the kernel symbols");
                    self.known = known;
                }
                Ok(Err(error)) => {
                    tracing::debug!(%error, "failed to reload the kernel symbols");
                }
                Err(_) => tracing::error!("reading the kernel's symbols ended in a panic"),
            }
        }
        if self.reading.is_some() || self.are_hidden() {
            return;
        }
        let state = State::now(self.known.state.last_program, self.next_program);
        let missed = self.missed.load(Ordering::Relaxed) && self.read_at.elapsed() >= PAUSE;
        if state == self.known.state && !missed {
            return;
        }
        self.missed.store(false, Ordering::Relaxed);
        self.read_at = Instant::now();
        let thread = Thread::new().name("profcol-symbols".into());
        match thread.spawn(move || LoadedSymbols::read(state)) {
            Ok(reading) => self.reading = Some(reading),
            Err(error) => tracing::debug!(%error, "failed to start a thread"),
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
        let known = self.modules.get(module);
        // A BPF program is in no module and stands by itself.
        let start = known
            .map(|module| module.start)
            .or(symbol.map(|symbol| symbol.start));
        KernelFrame {
            function: symbol.map(|symbol| symbol.name),
            file: module,
            build_id: known.and_then(|module| module.build_id.as_deref()),
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

/// In hex, as it stands in notes of the kernel.
fn build_id(notes: &[u8]) -> Option<String> {
    let id = profcol_elf::build_id(notes)?;
    Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl State {
    /// Numbers of BPF programs only go up, so it is enough to look behind the last one.
    fn now(mut last_program: u32, next_program: NextProgram) -> Self {
        for _ in 0..MAX_PROGRAMS {
            match next_program(last_program) {
                Some(next) if next > last_program => last_program = next,
                _ => break,
            }
        }
        // How often a module is used changes all the time.
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
    fn addresses_count_from_where_their_file_was_put() {
        let text = "ffffffff81000000 T _text\nffffffff81000100 T first\nffffffff81001000 T _etext\n\
                    ffffffffc0000100 t inside\t[module]\nffffffffc1000000 t bpf_prog_1\t[bpf]\n";
        let module = Module {
            start: 0xffffffffc0000000,
            build_id: Some("ab".into()),
        };
        let known = LoadedSymbols {
            symbols: KernelSymbols::parse(text.as_bytes()).expect("reads from memory"),
            build_id: Some("cd".into()),
            modules: HashMap::from([("module".to_owned(), module)]),
            ..LoadedSymbols::default()
        };
        let names = KernelNames::new(known, |_| None);
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
    fn reads_a_line_of_the_list_of_modules() {
        let (name, module) =
            parse_module("ext4 700 1 mbcache,jbd2, Live 0xffffffffc0400000").expect("is one");
        assert_eq!((name.as_str(), module.start), ("ext4", 0xffffffffc0400000));
        assert!(parse_module("ext4 700 1 - Live 0x0000000000000000").is_none());
    }
}
