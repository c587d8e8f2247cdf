//! `llvm-symbolizer` names the same addresses as we do, of executables of this machine and of programs
//! that are compiled here by each compiler that there is.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test tells what differs and what it skipped, and its failures are panics"
)]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;

use object::elf::SHF_EXECINSTR;
use profcol_debuginfo::elf::{Elf, LE, has_data};
use profcol_debuginfo::{Places, Source, separate};
use profcol_symbols::Symbols;

/// Of each executable.
const ADDRESSES: u64 = 200;
/// Executables of this machine, spread over all that there are.
const EXECUTABLES: usize = 50;

/// Name, file, line and column.
type Frame = (String, String, u32, u32);

/// Why both may say something else of an address, and both be right.
const EXPLAINED: &[Explained] = &[(
    // Of a local symbol it knows in which file it was compiled; we say files only with lines.
    "file of the symbol table",
    |theirs, ours| match (theirs, ours) {
        ([theirs], [ours]) => theirs.0 == ours.0 && theirs.2 == 0 && ours.1.is_empty(),
        _ => false,
    },
)];

type Explained = (&'static str, fn(&[Frame], &[Frame]) -> bool);

fn oracle() -> Option<&'static str> {
    let names = ["llvm-symbolizer-22", "llvm-symbolizer"];
    names.into_iter().find(|name| {
        let run = Command::new(name).arg("--version").output();
        run.is_ok_and(|run| run.status.success())
    })
}

fn theirs(oracle: &str, file: &Path, addresses: &[u64]) -> Vec<Vec<Frame>> {
    let mut child = Command::new(oracle)
        .arg(format!("--obj={}", file.display()))
        .arg("--no-demangle")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let lines: String = addresses.iter().map(|it| format!("{it:#x}\n")).collect();
    let writing = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let blocks = text.trim_end().split("\n\n");
    blocks
        .map(|block| {
            let lines: Vec<&str> = block.lines().collect();
            lines
                .chunks(2)
                .map(|pair| frame(pair[0], pair[1]))
                .collect()
        })
        .collect()
}

fn frame(name: &str, place: &str) -> Frame {
    let mut parts = place.rsplitn(3, ':');
    let mut number = || parts.next().unwrap().parse().unwrap();
    let (column, line) = (number(), number());
    let known = |text: &str| {
        if text == "??" {
            String::new()
        } else {
            text.to_owned()
        }
    };
    (known(name), known(parts.next().unwrap()), line, column)
}

fn ours(file: &Path, addresses: &[u64]) -> Vec<Vec<Frame>> {
    let opened = File::open(file).unwrap();
    let debug = || -> Option<Rc<dyn Source>> {
        let places = Places {
            roots: &["/".into()],
            executable: file,
            directories: &["/usr/lib/debug".into()],
        };
        Some(Rc::new(separate(&opened, &places)?.file))
    };
    let source = Rc::new(opened.try_clone().unwrap());
    let Ok(mut symbols) = Symbols::read(source, debug, 1 << 30) else {
        return vec![vec![frame("??", "??:0:0")]; addresses.len()];
    };
    let found = addresses
        .iter()
        .map(|&address| match symbols.find(address) {
            Ok(frames) => frames
                .into_iter()
                .map(|it| (it.name, it.file.to_string(), it.line, it.column))
                .collect(),
            Err(_) => vec![frame("??", "??:0:0")],
        });
    found.collect()
}

/// Spread over all code.
fn addresses(file: &Path) -> Option<Vec<u64>> {
    let opened = File::open(file).ok()?;
    let elf = Elf::read(&opened).ok()?;
    let is_code = |it: &&_| has_data(it) && elf.name(it) == b".text";
    let code = elf.sections.iter().find(is_code)?;
    let is_executable = code.sh_flags.get(LE) & u64::from(SHF_EXECINSTR) != 0;
    let (start, size) = (code.sh_addr.get(LE), code.sh_size.get(LE));
    let count = ADDRESSES.min(size);
    // Not at the same place of each function that has a round size.
    is_executable.then(|| {
        (0..count)
            .map(|it| start + it * size / count + it % 16 % (size / count))
            .collect()
    })
}

/// What differs, by class; panics where it is not explained.
fn compare(oracle: &str, files: &[PathBuf]) -> usize {
    let mut classes: BTreeMap<&str, usize> = BTreeMap::new();
    let mut strange = Vec::new();
    let mut compared = 0;
    for file in files {
        let Some(addresses) = addresses(file) else {
            continue;
        };
        let (theirs, ours) = (theirs(oracle, file, &addresses), ours(file, &addresses));
        assert_eq!(theirs.len(), ours.len(), "{}", file.display());
        compared += addresses.len();
        for ((address, theirs), ours) in addresses.iter().zip(theirs).zip(ours) {
            if theirs == ours {
                continue;
            }
            match EXPLAINED.iter().find(|(_, is_it)| is_it(&theirs, &ours)) {
                Some((class, _)) => *classes.entry(class).or_default() += 1,
                None => strange.push(format!(
                    "{} {address:#x}\n  theirs {theirs:?}\n  ours   {ours:?}",
                    file.display()
                )),
            }
        }
    }
    println!(
        "{compared} addresses of {} files; differences: {classes:?}",
        files.len()
    );
    let shown = strange
        .iter()
        .take(20)
        .cloned()
        .collect::<Vec<_>>()
        .join("\n");
    assert!(
        strange.is_empty(),
        "{} not explained:\n{shown}",
        strange.len()
    );
    compared
}

fn executables() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in [
        "/usr/bin",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
    ] {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let files = entries.filter_map(|entry| std::fs::canonicalize(entry.path()).ok());
        found.extend(
            files.filter(|file| addresses(file).is_some_and(|it| it.len() as u64 == ADDRESSES)),
        );
    }
    found.sort();
    found.dedup();
    let step = (found.len() / EXECUTABLES).max(1);
    found.into_iter().step_by(step).take(EXECUTABLES).collect()
}

#[test]
fn executables_of_this_machine_have_the_names_that_llvm_gives_them() {
    let Some(oracle) = oracle() else {
        return skip("llvm-symbolizer");
    };
    let mut files = executables();
    // Rust, with inlined frames.
    files.push(std::env::current_exe().unwrap());
    compare(oracle, &files);
}

#[test]
fn programs_of_each_compiler_have_the_names_that_llvm_gives_them() {
    let Some(oracle) = oracle() else {
        return skip("llvm-symbolizer");
    };
    let folder = tempfile::tempdir().unwrap();
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let mut files = Vec::new();
    for (number, options) in CPP.iter().enumerate() {
        for compiler in ["g++", "clang++"] {
            let program = folder.path().join(format!("{compiler}-{number}"));
            let mut command = Command::new(compiler);
            command
                .args(*options)
                .args(["-o".as_ref(), program.as_os_str()]);
            if succeeds(command.arg(programs.join("shapes.cc"))) {
                files.push(program);
            } else {
                assert_ne!(compiler, "g++", "{options:?}");
            }
        }
    }
    for flags in ["", "-w", "-compressdwarf=false"] {
        let program = folder.path().join(format!("go{flags}"));
        let mut go = Command::new("go");
        go.args(["build", "-ldflags", flags, "-o"]).arg(&program);
        match succeeds(go.arg(programs.join("shapes.go"))) {
            true => files.push(program),
            false => skip("Go"),
        }
    }
    compare(oracle, &files);
}

/// LLVM reads it no more, distributions still have such files.
#[test]
fn what_is_compressed_in_the_old_way_has_the_same_names() {
    let folder = tempfile::tempdir().unwrap();
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let [plain, old] = ["-gz=none", "-gz=zlib-gnu"].map(|option| {
        let program = folder.path().join(option);
        let mut compiler = Command::new("g++");
        compiler.args(["-O2", "-g", option, "-o"]).arg(&program);
        assert!(succeeds(compiler.arg(programs.join("shapes.cc"))));
        let addresses = addresses(&program).unwrap();
        ours(&program, &addresses)
    });
    assert_eq!(plain, old);
    assert!(
        plain
            .iter()
            .flatten()
            .any(|frame| frame.1.ends_with("shapes.cc"))
    );
}

/// Versions of DWARF, compression, optimisation when it is linked, a section for each function.
const CPP: &[&[&str]] = &[
    &["-O2", "-g", "-gdwarf-4"],
    &["-O2", "-g", "-gdwarf-5"],
    &["-O2", "-g", "-gz=zlib", "-fdebug-types-section"],
    &["-O3", "-g", "-ffunction-sections", "-Wl,--gc-sections"],
    &["-O2", "-g", "-flto"],
    &["-O0", "-g", "-gdwarf-3"],
    &["-O1", "-g", "-no-pie", "-static"],
    &["-O2"],
];

fn succeeds(command: &mut Command) -> bool {
    let run = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    run.is_ok_and(|status| status.success())
}

fn skip(what: &str) {
    assert!(std::env::var_os("CI").is_none(), "CI has {what}");
    println!("skipped: no {what}");
}
