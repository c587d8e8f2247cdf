//! Contexts in libraries of running programs, against the addresses that the programs themselves print.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use profcol_ebpf_common::context::library::{ProcessContexts, kind};
use profcol_ebpf_common::context::{ContextMemory, Loss};
use profcol_ebpf_unwind::ElfCode;
use profcol_elf::Machine;
use profcol_test_skip::skip;

use super::library::{CLibrary, ContextFile, returns_argument};
use super::processes::{LibraryContexts, Worker};
use crate::memory::{Memory, MemoryError, ProcessMemory};

/// As in the programs of the kernel, without labels.
struct Thread(ProcessMemory);

impl ContextMemory for Thread {
    fn word(&mut self, address: u64) -> Option<u64> {
        self.0.word(address).ok()
    }

    fn load_label(&mut self, _: u64, _: u64) -> bool {
        false
    }

    fn swap_label(&mut self) {}

    fn add_label(&mut self) {}

    fn added(&self) -> u64 {
        0
    }

    fn lose(&mut self, _: Loss) {}
}

const LIBRARY: &str = r#"
#include <stdint.h>
__thread void *otel_thread_ctx_v1, *custom_labels_current_set;
uint32_t custom_labels_abi_version = 1;
#ifdef LARGE
__thread long large[1000] = {1};
#endif
__thread long padding[NUMBER] = {1};
void set(void *record, void *labels) {
    otel_thread_ctx_v1 = record;
    custom_labels_current_set = labels;
    padding[0]++;
}
"#;

/// Prints its thread pointer after each step that an argument names, and waits for its input at the end.
const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#ifdef LINKED
void set(void *record, void *labels);
#endif
int main(int count, char **words) {
    void *library = NULL, *thread;
    __asm__("mov %%fs:0, %0" : "=r"(thread));
#ifdef LINKED
    set((void *)0x1001, (void *)0x2001);
#endif
    for (int i = 1; i < count; i++) {
        if (strcmp(words[i], "close") == 0) {
            dlclose(library);
        } else {
            library = dlopen(words[i], RTLD_NOW);
            if (library == NULL) return 1;
            void (*set)(void *, void *) = (void (*)(void *, void *))dlsym(library, "set");
            set((void *)(0x1000 + (uintptr_t)i), (void *)(0x2000 + (uintptr_t)i));
        }
    }
    printf("%p\n", thread);
    fflush(stdout);
    return getchar();
}
"#;

struct Program {
    child: Child,
    thread: u64,
}

impl Program {
    /// Once it has done what its arguments say.
    fn start(program: &Path, arguments: &[&Path]) -> Self {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let digits = line.trim().trim_start_matches("0x");
        let thread = u64::from_str_radix(digits, 16).unwrap();
        Self { child, thread }
    }

    /// The records and the sets of labels of its thread, by the contexts that were found.
    fn values(&self, contexts: &ProcessContexts) -> (Vec<u64>, Vec<u64>) {
        let mut memory = Thread(ProcessMemory::open(self.child.id()).unwrap());
        let mut values = |of: u32| {
            let variables = contexts.variables.iter();
            let variables = variables.filter(|variable| variable.kind == of);
            let values = variables.filter_map(|variable| {
                let value = variable.value(&contexts.table, self.thread, &mut memory);
                value.expect("the table is readable")
            });
            values.collect::<Vec<u64>>()
        };
        (values(kind::OTEL), values(kind::CUSTOM_LABELS))
    }

    fn contexts(&self) -> ProcessContexts {
        Worker::<()>::new(channel().0).look_at(self.child.id())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Runs a compiler in the folder; false if it is not installed.
fn build(folder: &Path, command: &str) -> bool {
    let mut words = command.split_whitespace();
    let compiler = words.next().unwrap();
    let compiled = Command::new(compiler)
        .args(words)
        .current_dir(folder)
        .output();
    let Ok(compiled) = compiled else {
        skip(&format!("{compiler} is not installed"));
        return false;
    };
    let said = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{command}: {said}");
    true
}

#[test]
fn variables_are_found_in_each_tls_model() {
    if cfg!(not(target_arch = "x86_64")) {
        return skip("the programs are for x86-64");
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("library.c"), LIBRARY).unwrap();
    fs::write(folder.join("program.c"), PROGRAM).unwrap();
    for (number, (compiler, options)) in (1..).zip([
        ("gcc", "-mtls-dialect=gnu2"),
        ("gcc", "-mtls-dialect=gnu"),
        ("gcc", "-ftls-model=initial-exec"),
        ("gcc", "-ftls-model=local-dynamic"),
        ("gcc", "-mtls-dialect=gnu2 -ftls-model=local-dynamic"),
        // Too large for the room that glibc reserves beside the thread pointer.
        ("gcc", "-mtls-dialect=gnu2 -DLARGE"),
        ("gcc", "-mtls-dialect=gnu -DLARGE"),
        ("musl-gcc", "-mtls-dialect=gnu2"),
        ("musl-gcc", "-mtls-dialect=gnu"),
        ("musl-gcc", "-ftls-model=initial-exec"),
    ]) {
        // Different sizes lead to different places.
        let library = format!(
            "{compiler} -O1 -fPIC -shared -DNUMBER={number} {options} -Wl,-soname,library{number}.so library.c -o library{number}.so"
        );
        let linked = format!(
            "{compiler} -O1 -DLINKED program.c library{number}.so -Wl,-rpath,$ORIGIN -o linked{number}"
        );
        let opened = format!("{compiler} -O1 program.c -o opened{number}");
        if ![library, linked, opened]
            .iter()
            .all(|command| build(folder, command))
        {
            continue;
        }
        let path = folder.join(format!("library{number}.so"));
        // Musl has no room for such libraries after the start.
        if (compiler, options) != ("musl-gcc", "-ftls-model=initial-exec") {
            let program = Program::start(&folder.join(format!("opened{number}")), &[&path]);
            let values = program.values(&program.contexts());
            assert_eq!(values, (vec![0x1001], vec![0x2001]), "{compiler} {options}");
        }
        let program = Program::start(&folder.join(format!("linked{number}")), &[]);
        let values = program.values(&program.contexts());
        assert_eq!(
            values,
            (vec![0x1001], vec![0x2001]),
            "{compiler} {options}, linked"
        );
    }
}

#[test]
fn libraries_come_and_go() {
    if cfg!(not(target_arch = "x86_64")) {
        return skip("the programs are for x86-64");
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("library.c"), LIBRARY).unwrap();
    fs::write(folder.join("program.c"), PROGRAM).unwrap();
    let library = |number: u32| {
        format!(
            "gcc -O1 -fPIC -shared -mtls-dialect=gnu2 -DLARGE -DNUMBER={number} library.c -o {number}.so"
        )
    };
    let program = "gcc -O1 program.c -o program".to_owned();
    if ![library(1), library(2), library(3), program]
        .iter()
        .all(|it| build(folder, it))
    {
        return;
    }
    let path = |number: u32| folder.join(format!("{number}.so"));
    let [first, second, third] = [1, 2, 3].map(path);
    let (first, second, third) = (&*first, &*second, &*third);
    let close = Path::new("close");
    for (steps, records) in [
        (&[first, second][..], &[0x1001, 0x1002][..]),
        (&[first, close], &[]),
        // It gets the number of the closed one.
        (&[first, close, second], &[0x1003]),
        // Two variables of each are too many.
        (&[first, second, third], &[0x1001, 0x1002]),
    ] {
        let program = Program::start(&folder.join("program"), steps);
        let contexts = program.contexts();
        let (mut found, _) = program.values(&contexts);
        found.sort_unstable();
        match steps.len() {
            3 if records.len() == 2 => assert_eq!(found.len(), 2, "{found:x?}"),
            _ => assert_eq!(found, records, "{steps:?}"),
        }
    }
    // What was found before.
    let program = Program::start(&folder.join("program"), &[first]);
    let contexts = program.contexts();
    let mut other = contexts;
    other.variables[0].witnessed ^= 1;
    other.variables[1].witness = 8;
    assert_eq!(program.values(&other), (vec![], vec![]));
    let mut newer = contexts;
    for variable in &mut newer.variables {
        variable.generation = u64::MAX;
    }
    assert_eq!(program.values(&newer), (vec![], vec![]));
}

#[test]
fn a_process_is_looked_at_again_while_it_is_sampled() {
    let mut contexts: LibraryContexts<u32> = LibraryContexts::start().unwrap();
    let begin = Instant::now();
    let looked_at = |contexts: &mut LibraryContexts<u32>, now: Instant| {
        contexts.observe(7, std::process::id(), now);
        let waits = contexts.waits_for(7);
        let until = Instant::now() + Duration::from_secs(60);
        while contexts.waits_for(7) && Instant::now() < until {
            assert!(contexts.take(now).is_empty());
            thread::sleep(Duration::from_millis(5));
        }
        waits
    };
    let mut due = Vec::new();
    for seconds in 0..200 {
        if looked_at(&mut contexts, begin + Duration::from_secs(seconds)) {
            due.push(seconds);
        }
    }
    // Unless it takes long, as on a busy host.
    assert_eq!(due.first(), Some(&0));
    let delays: Vec<u64> = due.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(delays.is_sorted() && delays.len() <= 9, "{due:?}");
    assert!(delays.iter().all(|delay| *delay >= 1), "{due:?}");
    contexts.forget_idle(begin + Duration::from_secs(200));
    assert!(!looked_at(&mut contexts, begin + Duration::from_secs(200)));
    contexts.forget_idle(begin + Duration::from_secs(400));
    assert!(looked_at(&mut contexts, begin + Duration::from_secs(400)));
}

#[test]
fn descriptors_tell_whether_the_place_is_fixed() {
    let x86: [&[u8]; 4] = [
        &[0x48, 0x8b, 0x40, 0x08, 0xc3],
        // endbr64
        &[0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x8b, 0x40, 0x08, 0xc3],
        // Of a weak symbol: add rax, [fs:0] follows.
        &[0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x8b, 0x40, 0x08, 0x64],
        &[],
    ];
    let found = x86.map(|code| returns_argument(Machine::X86_64, code));
    assert_eq!(found, [true, true, false, false]);
    let aarch64: [&[u8]; 3] = [
        &[0x00, 0x04, 0x40, 0xf9, 0xc0, 0x03, 0x5f, 0xd6],
        // bti c
        &[
            0x5f, 0x24, 0x03, 0xd5, 0x00, 0x04, 0x40, 0xf9, 0xc0, 0x03, 0x5f, 0xd6,
        ],
        // stp x1, x2, [sp, #-16]!
        &[
            0xe1, 0x0b, 0xbf, 0xa9, 0x00, 0x04, 0x40, 0xf9, 0xc0, 0x03, 0x5f, 0xd6,
        ],
    ];
    let found = aarch64.map(|code| returns_argument(Machine::Aarch64, code));
    assert_eq!(found, [true, true, false]);
}

/// A library's descriptors, the function of all, and their arguments.
struct Descriptors {
    is_fixed: bool,
    module: u64,
}

const BIAS: u64 = 0x7f00_0000_0000;
const FUNCTION: u64 = 0x10_0000;
const ARGUMENT: u64 = 0x20_0000;

impl Memory for Descriptors {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), MemoryError> {
        let bytes = match address {
            FUNCTION if self.is_fixed => [
                0x00, 0x04, 0x40, 0xf9, 0xc0, 0x03, 0x5f, 0xd6, 0, 0, 0, 0, 0, 0, 0, 0,
            ],
            FUNCTION => [0; 16],
            _ => {
                let word = match address {
                    ARGUMENT => self.module,
                    _ if address >= BIAS && address & 8 == 0 => FUNCTION,
                    _ if address >= BIAS => ARGUMENT,
                    _ => 5,
                };
                let mut bytes = [0; 16];
                bytes[..8].copy_from_slice(&word.to_le_bytes());
                bytes
            }
        };
        buffer.copy_from_slice(&bytes[..buffer.len()]);
        Ok(())
    }
}

#[test]
fn libraries_for_aarch64_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("library.c"), LIBRARY).unwrap();
    let command =
        "aarch64-linux-gnu-gcc -O1 -fPIC -shared -nostdlib -DNUMBER=1 library.c -o library.so";
    if !build(folder, command) {
        return;
    }
    let file = File::open(folder.join("library.so")).unwrap();
    let code = ElfCode::read(&file).unwrap();
    let Ok(Some(ContextFile::Library(library))) = ContextFile::read(&code, &file) else {
        panic!("it is a library with variables");
    };
    let locate = |is_fixed, module| {
        let memory = Descriptors { is_fixed, module };
        let found = library.locate(BIAS, CLibrary::Glibc, &memory);
        found
            .map(|it| (it.module, it.offset, it.generation))
            .collect::<Vec<_>>()
    };
    assert_eq!(locate(true, 7), [(0, ARGUMENT, 0); 2]);
    assert_eq!(locate(false, 7), [(7, 5, 5); 2]);
    // Not placed yet, or forged.
    assert_eq!(locate(false, 0), []);
    assert_eq!(locate(false, u64::MAX), []);

    // In a program they are behind the thread pointer, its alignment, and what is before them.
    let program =
        "aarch64-linux-gnu-gcc -O1 -nostdlib -DNUMBER=5 -Wl,-e,set -rdynamic library.c -o program";
    assert!(build(folder, program));
    let file = File::open(folder.join("program")).unwrap();
    let code = ElfCode::read(&file).unwrap();
    let found = super::detect(&code, &file).unwrap().unwrap();
    let offsets = [found.otel.offset, found.custom_labels.offset];
    let said = Command::new("readelf")
        .args(["-sW", "program"])
        .current_dir(folder)
        .output();
    let said = String::from_utf8(said.unwrap().stdout).unwrap();
    let expected = ["otel_thread_ctx_v1", "custom_labels_current_set"].map(|name| {
        let line = said.lines().find(|line| line.ends_with(name)).unwrap();
        let value = line.split_whitespace().nth(1).unwrap();
        16 + u64::from_str_radix(value, 16).unwrap()
    });
    assert_eq!(offsets, expected);
}
