//! Compares tables with the output of `readelf -wF`: each row is equal or unsupported, never different.

#![allow(clippy::print_stdout, reason = "statistics")]

mod readelf;

use profcol_ebpf_common::rule::{Cfa, ReturnAddress, Rule, SavedFp};
use profcol_ebpf_common::table::PAGE_SIZE;
use profcol_ebpf_unwind::{ElfCode, Table, UnwindTableError};
use profcol_elf::{Machine, Segment};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

#[derive(Default)]
struct Figures {
    files: u64,
    refused: u64,
    rows: u64,
    oracle: u64,
    unsupported: u64,
    unequal: u64,
    /// Positions in Go functions that switch stacks, begin them or return from signals.
    special: u64,
    /// Rows without a readelf row: derived from code.
    derived: u64,
    bytes: u64,
    rules: HashSet<Rule>,
    time: Duration,
    slowest: (Duration, PathBuf),
    complaints: Vec<String>,
}

impl Figures {
    fn complain(&mut self, path: &Path, pc: u64, what: &str) {
        self.unequal += 1;
        if self.complaints.len() < 40 {
            self.complaints
                .push(format!("{} {pc:#x}: {what}", path.display()));
        }
    }
}

fn check(path: &Path, figures: &mut Figures) -> Result<(), UnwindTableError> {
    let file = match File::open(path) {
        // A build elsewhere on the machine deleted it since the directories were listed.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file.expect("the file opens"),
    };
    let begin = Instant::now();
    let elf = ElfCode::read(&file)?;
    let table = Table::build(&elf, &file)?;
    let took = begin.elapsed();
    figures.time += took;
    if took > figures.slowest.0 {
        figures.slowest = (took, path.to_owned());
    }
    figures.files += 1;
    figures.rows += table.rows.len() as u64;
    figures.bytes += table.bytes() as u64;
    figures
        .rules
        .extend(table.rules.iter().map(|rule| rule.decode()));
    for pair in table.rules.iter().enumerate() {
        assert!(!table.rules[..pair.0].contains(pair.1), "{pair:?} twice");
    }

    let (fp, sp) = match elf.machine {
        Machine::X86_64 => ("rbp", "rsp"),
        Machine::Aarch64 => ("x29", "sp"),
    };
    let oracle = readelf::read(path, fp, sp);
    if !path.exists() {
        return Ok(());
    }
    for entry in oracle.entries() {
        let Some(segment) = elf
            .segments
            .iter()
            .find(|segment| holds(segment, entry.start))
        else {
            continue;
        };
        for (index, row) in entry.rows.iter().enumerate() {
            let end = entry
                .rows
                .get(index + 1)
                .map_or(entry.end, |next| next.start);
            let end = end.min(segment.address + segment.file_size);
            if row.start >= end {
                continue;
            }
            for pc in [row.start, end - 1] {
                let Some((winner, row)) = oracle.at(pc) else {
                    figures.complain(path, pc, "the oracle finds no row");
                    continue;
                };
                figures.oracle += 1;
                let ours = table.lookup(pc - segment.address + segment.file_offset);
                if elf.is_go() && winner.debug {
                    // Go does not describe the frame pointer here, nor stack switches.
                    match ours {
                        Rule::Frame {
                            cfa: Cfa::Sp(offset),
                            ..
                        } => {
                            let sp = if fp == "rbp" { "rsp" } else { "sp" };
                            if row.cfa != format!("{sp}{offset:+}") {
                                figures.complain(path, pc, &format!("{ours:?}, Go {row:?}"));
                            }
                        }
                        Rule::Gap => figures.complain(path, pc, &format!("a gap, Go {row:?}")),
                        _ => figures.special += 1,
                    }
                } else if ours == Rule::Unsupported {
                    figures.unsupported += 1;
                } else if ours == Rule::End && winner.start == elf.entry {
                    // Compilers do not know that the entry has no caller.
                    figures.special += 1;
                } else if let Err(theirs) = agree(elf.machine, ours, row, winner.signal) {
                    figures.complain(path, pc, &format!("{ours:?}, but readelf {theirs}"));
                }
            }
        }
    }
    check_additional_rules(path, &elf, &table, &oracle, figures);
    Ok(())
}

/// Where readelf has no row, there is a gap or a rule derived from code.
fn check_additional_rules(
    path: &Path,
    elf: &ElfCode,
    table: &Table,
    oracle: &readelf::ReadelfOutput,
    figures: &mut Figures,
) {
    for (index, page) in table.pages.iter().enumerate() {
        let first = page.rows as usize;
        let rows = &table.rows[first..first + page.count as usize];
        assert!(rows.is_sorted_by(|a, b| a.offset() < b.offset()));
        assert!(
            rows.windows(2).all(|pair| pair[0].rule() != pair[1].rule()),
            "equal neighbours"
        );
        for row in rows {
            let rule = table.rules[row.rule() as usize].decode();
            let offset = (table.first_page + index as u64) * PAGE_SIZE + u64::from(row.offset());
            let Some(segment) = elf
                .segments
                .iter()
                .find(|s| (s.file_offset..s.file_offset + s.file_size).contains(&offset))
            else {
                if rule != Rule::Gap {
                    figures.complain(path, offset, "a rule outside the code");
                }
                continue;
            };
            let pc = offset - segment.file_offset + segment.address;
            if oracle.at(pc).is_none() && rule != Rule::Gap {
                figures.derived += 1;
            }
        }
    }
}

fn holds(segment: &Segment, pc: u64) -> bool {
    (segment.address..segment.address + segment.file_size).contains(&pc)
}

fn agree(machine: Machine, ours: Rule, row: &readelf::Row, signal: bool) -> Result<(), String> {
    // readelf prints an unset register as undefined if another row of the entry sets it; that of
    // the return address is always set on x86-64.
    let undefined = row.ra.as_deref() == Some("u");
    let link_register = machine == Machine::Aarch64 && undefined;
    let fine = match ours {
        Rule::End => undefined,
        Rule::SignalFrame => signal,
        Rule::Plt { .. } => {
            row.cfa == "exp" && row.fp.is_none() && row.ra.as_deref() == Some("c-8")
        }
        Rule::Frame { cfa, fp, ra } => {
            let (sp_name, fp_name) = match machine {
                Machine::X86_64 => ("rsp", "rbp"),
                Machine::Aarch64 => ("sp", "x29"),
            };
            let cfa = match cfa {
                Cfa::Sp(offset) => format!("{sp_name}{offset:+}"),
                Cfa::Fp(offset) => format!("{fp_name}{offset:+}"),
                Cfa::SpSlot { .. } | Cfa::FpSlot { .. } => "exp".to_owned(),
            };
            let fp = match fp {
                SavedFp::Same => None,
                SavedFp::At(offset) => Some(format!("c{offset:+}")),
                SavedFp::AtFp(_) => Some("exp".to_owned()),
            };
            let ra = match ra {
                ReturnAddress::At(offset) => Some(format!("c{offset:+}")),
                ReturnAddress::LinkRegister if machine == Machine::X86_64 => {
                    Some("r5(rdi)".to_owned())
                }
                ReturnAddress::LinkRegister => None,
            };
            let unset = |rule: &Option<String>| rule.clone().filter(|rule| rule != "s");
            let unset_fp =
                |rule: &Option<String>| unset(rule).filter(|rule| rule != "u" || fp.is_some());
            (!undefined || link_register)
                && !signal
                && row.sp.as_deref().is_none_or(|sp| sp == "s" || sp == "u")
                && row.cfa == cfa
                && unset_fp(&row.fp) == fp
                && (unset(&row.ra) == ra || (link_register && ra.is_none()))
        }
        Rule::Gap | Rule::Unsupported | Rule::FramePointer | Rule::OtherStack => false,
    };
    fine.then_some(())
        .ok_or_else(|| format!("{row:?} signal {signal}"))
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 18];
    path.symlink_metadata()
        .is_ok_and(|meta| meta.is_file() && meta.len() > 64)
        && File::open(path).is_ok_and(|mut file| file.read_exact(&mut magic).is_ok())
        && magic.starts_with(b"\x7fELF\x02\x01")
        && matches!(magic[16], 2 | 3)
}

fn pseudo(path: &Path) -> bool {
    ["/proc", "/sys", "/dev"]
        .iter()
        .any(|pseudo| path == Path::new(pseudo))
}

fn elves(directory: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    // Skips build artifacts, which come and go, and fuzzer output, which is not a program.
    if directory.join("CACHEDIR.TAG").exists() {
        return;
    }
    for entry in entries.flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && !pseudo(&path) => elves(&path, found),
            Ok(kind) if kind.is_file() && is_elf(&path) => found.push(path),
            _ => {}
        }
    }
}

fn compare(paths: &[PathBuf]) -> Figures {
    let mut figures = Figures::default();
    for path in paths {
        if let Err(error) = check(path, &mut figures) {
            figures.refused += 1;
            println!("{}: {error}", path.display());
        }
    }
    println!(
        "{} files, {} refused; {} rows ({} derived from code), {:.2} bytes each; {} rules; \
         {} places compared, {} unsupported, {} special to Go and entries, {} unequal; built in {:?}, {:.1} M rows/s; slowest {:?}",
        figures.files,
        figures.refused,
        figures.rows,
        figures.derived,
        figures.bytes as f64 / figures.rows.max(1) as f64,
        figures.rules.len(),
        figures.oracle,
        figures.unsupported,
        figures.special,
        figures.unequal,
        figures.time,
        figures.rows as f64 / 1e6 / figures.time.as_secs_f64(),
        figures.slowest,
    );
    figures
}

#[test]
fn every_row_matches_readelf() {
    if !readelf_exists() {
        return;
    }
    let mut paths: Vec<PathBuf> = [
        "/bin/bash",
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib/x86_64-linux-gnu/libm.so.6",
        "/lib64/ld-linux-x86-64.so.2",
        "/lib/x86_64-linux-gnu/libcrypto.so.3",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1",
        "/usr/aarch64-linux-gnu/lib/libc.so.6",
        "/usr/aarch64-linux-gnu/lib/libm.so.6",
        "/usr/aarch64-linux-gnu/lib/libstdc++.so.6",
    ]
    .iter()
    .filter_map(|path| std::fs::canonicalize(path).ok())
    .collect();
    paths.push(std::env::current_exe().expect("this test is a file"));
    let figures = compare(&paths);
    assert!(figures.rows > 10_000, "{} rows", figures.rows);
    assert_eq!(figures.complaints, [""; 0]);
    assert!(figures.unsupported * 100 < figures.oracle);
}

/// Reports a skipped test; false, for its caller to return.
fn skip(why: &str) -> bool {
    profcol_test_skip::skip(why);
    false
}

fn readelf_exists() -> bool {
    readelf::missing().is_none_or(|why| skip(&why))
}

#[test]
fn parses_the_readelf_version() {
    for (output, expected) in [
        (
            "GNU readelf (GNU Binutils for Debian) 2.40\nCopyright",
            Some((2, 40)),
        ),
        ("GNU readelf version 2.35.2-63.el9", Some((2, 35))),
        (
            "llvm-readelf, compatible with GNU readelf\nLLVM version 14",
            None,
        ),
        ("", None),
    ] {
        assert_eq!(readelf::version(output), expected, "{output}");
    }
}

fn compile(command: &mut Command) -> bool {
    match command.output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => panic!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            let program = command.get_program().display();
            skip(&format!("{program} does not run: {error}"))
        }
    }
}

#[test]
fn go_stack_deltas_match_go() {
    if !readelf_exists() {
        return;
    }
    let directory = tempfile::tempdir().expect("there is room");
    let source = directory.path().join("main.go");
    let program = "package main\nimport \"os\"\nfunc main() { os.Stdout.WriteString(\"x\") }\n";
    std::fs::write(&source, program).expect("there is room");
    for (architecture, arguments) in [
        ("amd64", &[][..]),
        ("amd64", &["-buildmode=pie"]),
        ("amd64", &["-ldflags=-s -w"]),
        ("arm64", &[]),
    ] {
        let path = directory.path().join("program");
        let mut go = Command::new("go");
        go.arg("build")
            .args(arguments)
            .arg("-o")
            .arg(&path)
            .arg(&source);
        go.env("GOARCH", architecture)
            .env("GOOS", "linux")
            .env("CGO_ENABLED", "0");
        if !compile(&mut go) {
            return;
        }
        let figures = compare(std::slice::from_ref(&path));
        assert_eq!(figures.complaints, [""; 0]);
        assert!(figures.rows > 5_000 && figures.refused == 0);
        // A stripped file only has Go's table.
        let stripped = !arguments.is_empty() && arguments[0].starts_with("-ldflags");
        assert_eq!(figures.oracle == 0, stripped);
        assert!(figures.special * 50 <= figures.oracle);
    }
}

#[test]
fn recognizes_plts_of_every_linker() {
    if !readelf_exists() {
        return;
    }
    let directory = tempfile::tempdir().expect("there is room");
    let source = directory.path().join("lib.c");
    std::fs::write(&source, "int g(int); int f(int n) { return g(n) + 1; }")
        .expect("there is room");
    for (linker, options) in [
        ("bfd", &["-z", "lazy"][..]),
        ("bfd", &["-z", "lazy", "-z", "ibtplt"]),
        ("bfd", &["-z", "now"]),
        ("gold", &["-z", "lazy"]),
        ("mold", &["-z", "lazy"]),
        ("mold", &["-z", "now"]),
    ] {
        let path = directory.path().join("lib.so");
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", "-fPIC", "-shared", "-nostdlib", "-o"])
            .arg(&path)
            .arg(&source);
        gcc.arg(format!("-fuse-ld={linker}"));
        gcc.args(options.iter().flat_map(|option| ["-Xlinker", option]));
        if !linker_exists(linker) {
            skip(&format!("no linker {linker}"));
            continue;
        }
        if !compile(&mut gcc) {
            return;
        }
        let figures = compare(std::slice::from_ref(&path));
        assert_eq!(figures.complaints, [""; 0], "{linker} {options:?}");
        assert_eq!(figures.unsupported, 0, "{linker} {options:?}");
        let file = File::open(&path).expect("it was derived");
        let table = Table::build(&ElfCode::read(&file).expect("it is one"), &file);
        let rules = table.expect("it has a table").rules;
        assert!(
            !rules[2..].contains(&Rule::Unsupported.encode()),
            "{rules:?}"
        );
    }
}

fn linker_exists(linker: &str) -> bool {
    Command::new(format!("ld.{linker}"))
        .arg("--version")
        .output()
        .is_ok()
}

#[test]
#[ignore = "minutes; every ELF file below the directories in ORACLE, or of the machine"]
fn every_row_of_every_file_matches_readelf() {
    if !readelf_exists() {
        return;
    }
    let directories = std::env::var("ORACLE").unwrap_or_else(|_| "/".to_owned());
    let mut paths = Vec::new();
    for directory in directories.split(':') {
        elves(Path::new(directory), &mut paths);
    }
    paths.sort();
    let figures = compare(&paths);
    assert_eq!(figures.complaints, [""; 0]);
}
