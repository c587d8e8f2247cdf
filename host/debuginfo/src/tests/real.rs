//! The output for real programs resolves the same symbols as the programs themselves.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use object::elf::{SHT_PROGBITS, SHT_SYMTAB};

use profcol_test_skip::skip;

use super::program::{cpp, go, run};
use crate::{ExternalDwarf, Plan, SearchPaths, separate};
use profcol_elf::{Elf, LE};

/// Thousands of addresses spread over the code.
fn addresses(program: &Path) -> Vec<u64> {
    let file = File::open(program).unwrap();
    let elf = Elf::read(&file).unwrap();
    let text = elf.find(b".text").unwrap();
    let (start, size) = (text.sh_addr.get(LE), text.sh_size.get(LE));
    let step = (size / 10_000).max(1) as usize;
    (start..start + size).step_by(step).collect()
}

/// Any release works, because its output for the program is compared with its output for the extracted file.
/// Distributions append the release to the name.
const SYMBOLIZERS: [&str; 3] = [
    "llvm-symbolizer-22",
    "llvm-symbolizer",
    "llvm-symbolizer-14",
];

/// Functions, lines and inlined frames of the addresses.
fn symbolize(file: &Path, addresses: &[u64]) -> Option<String> {
    let start = |name: &&str| {
        let mut symbolizer = Command::new(name);
        let symbolizer = symbolizer.arg("--obj").arg(file);
        let streams = symbolizer.stdin(Stdio::piped()).stdout(Stdio::piped());
        streams.spawn().ok()
    };
    let Some(mut symbolizer) = SYMBOLIZERS.iter().find_map(start) else {
        skip("llvm-symbolizer is not installed");
        return None;
    };
    let mut input = symbolizer.stdin.take().unwrap();
    let queries: String = addresses.iter().map(|at| format!("{at:#x}\n")).collect();
    let writing = std::thread::spawn(move || input.write_all(queries.as_bytes()));
    let output = symbolizer.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    Some(String::from_utf8(output.stdout).unwrap())
}

fn extract(from: &Path, to: &Path) {
    let file = File::open(from).unwrap();
    let plan = Plan::strip(&file).unwrap();
    let size = plan.size();
    let mut extraction = plan.extract(file).unwrap();
    let written = std::io::copy(&mut extraction, &mut File::create(to).unwrap()).unwrap();
    assert_eq!(written, size);
    assert!(extraction.is_unchanged());
}

#[track_caller]
fn check(program: &Path, debug: &Path, says: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    let stripped = directory.path().join("stripped");
    extract(debug, &stripped);
    let addresses = addresses(program);
    let (Some(expected), Some(actual)) = (
        symbolize(program, &addresses),
        symbolize(&stripped, &addresses),
    ) else {
        return;
    };
    for name in says {
        assert!(expected.contains(name), "{name}:\n{expected}");
    }
    assert!(
        expected == actual,
        "{}",
        first_difference(&expected, &actual)
    );
    if let Some(sections) = run("readelf", &["-WSlns", stripped.to_str().unwrap()]) {
        assert!(!sections.contains("Warning"), "{sections}");
    }
}

fn first_difference(expected: &str, actual: &str) -> String {
    let mut lines = expected.lines().zip(actual.lines());
    let different = lines.find(|(expected, actual)| expected != actual);
    format!("{different:?}")
}

#[test]
fn cpp_symbols_and_inlined_frames_are_kept() {
    for (options, says) in [
        (&["-g"][..], &["innermost", "middle", "Outer::sum"][..]),
        (&["-g", "-gz"], &["innermost", "middle", "Outer::sum"]),
        (&["-g", "-static"], &["main"]),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let Some(program) = cpp(directory.path(), options) else {
            return;
        };
        check(&program, &program, says);
    }
}

#[test]
fn go_symbols_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    if let Some(program) = go(directory.path()) {
        check(&program, &program, &["main.main"]);
    }
}

#[test]
fn rust_symbols_are_kept() {
    let program = std::env::current_exe().unwrap();
    check(&program, &program, &["profcol_debuginfo::tests"]);
}

/// Compresses its debug sections with the given method, if any.
fn compress(program: &Path, how: &str) -> Option<()> {
    if !how.is_empty() {
        let how = format!("--compress-debug-sections={how}");
        run("objcopy", &[&how, program.to_str().unwrap()])?;
    }
    Some(())
}

#[test]
fn split_dwarf_is_replaced_by_symbols() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        for how in ["", "zlib-gnu", "zlib-gabi", "zstd"] {
            let directory = tempfile::tempdir().unwrap();
            let check_is = |options: &[&str], expected| {
                let program = cpp(directory.path(), options)?;
                compress(&program, how)?;
                let plan = Plan::strip(&File::open(&program).unwrap()).unwrap();
                assert_eq!(plan.elsewhere(), expected, "{options:?} {how}");
                assert_eq!(plan.contents().dwarf, expected.is_none());
                Some(program)
            };
            check_is(&["-g", version], None);
            let split = ["-g", "-gsplit-dwarf", version];
            let Some(program) = check_is(&split, Some(ExternalDwarf::Split)) else {
                return;
            };
            let stripped = directory.path().join("stripped");
            extract(&program, &stripped);
            // In a directory without the .dwo file.
            fs::remove_file(directory.path().join("program-main.dwo")).unwrap();
            let Some(frames) = symbolize(&stripped, &addresses(&program)) else {
                return;
            };
            assert!(frames.contains("Outer::sum"), "{frames}");
            assert!(!frames.contains("innermost"), "{frames}");
            let sections = run("readelf", &["-WS", stripped.to_str().unwrap()]).unwrap();
            let dwarf = sections.lines().filter(|line| line.contains("debug_"));
            assert!(
                dwarf.clone().all(|line| line.contains("NOBITS")),
                "{sections}"
            );
            assert!(dwarf.count() > 0, "{sections}");
        }
    }
}

#[test]
fn dwarf_shared_with_other_files_is_replaced_by_symbols() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = cpp(directory.path(), &["-g"]) else {
        return;
    };
    let text = program.to_str().unwrap();
    let link = directory.path().join("link");
    fs::write(&link, b"common.debug\0a build id").unwrap();
    let section = format!("--add-section=.gnu_debugaltlink={}", link.display());
    if run("objcopy", &[&section, text]).is_none() {
        return;
    }
    let plan = || Plan::strip(&File::open(&program).unwrap()).unwrap();
    assert_eq!(plan().elsewhere(), Some(ExternalDwarf::Common));
    assert!(!plan().contents().dwarf && plan().contents().all_symbols);
    // Without symbols it is better than nothing.
    let mut bytes = fs::read(&program).unwrap();
    let elf = Elf::read(&bytes[..]).unwrap();
    let symbols = elf
        .sections
        .iter()
        .position(|section| section.sh_type.get(LE) == SHT_SYMTAB);
    let header = elf.header.e_shoff.get(LE) as usize
        + symbols.unwrap() * elf.header.e_shentsize.get(LE) as usize;
    bytes[header + 4] = SHT_PROGBITS as u8;
    let plan = Plan::strip(&bytes[..]).unwrap();
    assert_eq!(plan.elsewhere(), None);
    assert!(plan.contents().dwarf);
}

#[test]
fn a_checksum_of_a_large_file_can_be_cancelled() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = cpp(directory.path(), &["-Wl,--build-id=none"]) else {
        return;
    };
    let debug = directory.path().join("program.debug");
    let link = format!("--add-gnu-debuglink={}", debug.display());
    fs::copy(&program, &debug).unwrap();
    if run("objcopy", &[&link, program.to_str().unwrap()]).is_none() {
        return;
    }
    let look = |most: u32| {
        let checks = Cell::new(0);
        let goes_on = || {
            checks.set(checks.get() + 1);
            checks.get() <= most
        };
        let search_paths = SearchPaths {
            roots: &[directory.path().into()],
            executable: Path::new("/program"),
            directories: &[],
            goes_on: &goes_on,
        };
        let debug_file = separate(&File::open(&program).unwrap(), &search_paths);
        (debug_file.is_some(), checks.get())
    };
    assert_eq!(look(u32::MAX), (true, 1), "small file");
    // An executable may have any data after its end.
    let longer = File::options().write(true).open(&debug).unwrap();
    longer.set_len(1 << 40).unwrap();
    assert_eq!(look(3), (false, 4), "stops long before the end");
}

#[test]
fn finds_the_debug_file_beside_a_stripped_program() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = cpp(directory.path(), &["-g"]) else {
        return;
    };
    let full = directory.path().join("full");
    fs::copy(&program, &full).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let debug = directory.path().join("program.debug");
    let link = format!("--add-gnu-debuglink={}", text(&debug));
    let stripping = [
        vec!["--only-keep-debug".into(), text(&program), text(&debug)],
        vec!["--strip-all".into(), link, text(&program)],
    ];
    for arguments in &stripping {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        if run("objcopy", &arguments).is_none() {
            return;
        }
    }
    let id = run("readelf", &["-n", &text(&program)]).unwrap();
    let (_, id) = id.split_once("Build ID: ").unwrap();
    let id = id.split_whitespace().next().unwrap();

    let look = || {
        let search_paths = SearchPaths {
            roots: &[directory.path().join("nowhere"), directory.path().into()],
            executable: Path::new("/program"),
            directories: &["/debug".into()],
            goes_on: &|| true,
        };
        separate(&File::open(&program).unwrap(), &search_paths).map(|it| it.path)
    };
    let check_at = |place: &str| {
        let to = directory.path().join(place);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::rename(&debug, &to).unwrap();
        assert_eq!(look(), Some(Path::new("/").join(place)));
        check(&full, &to, &["innermost", "Outer::sum"]);
        fs::rename(&to, &debug).unwrap();
    };
    check_at(&format!("debug/.build-id/{}/{}.debug", &id[..2], &id[2..]));
    check_at("debug/program.debug");
    check_at(".debug/program.debug");
    assert_eq!(look().as_deref(), Some(Path::new("/program.debug")));
    let other_directory = tempfile::tempdir().unwrap();
    let other = cpp(other_directory.path(), &["-g", "-DNDEBUG", "-O1"]).unwrap();
    fs::copy(other, &debug).unwrap();
    assert_eq!(look(), None, "another version");
}
