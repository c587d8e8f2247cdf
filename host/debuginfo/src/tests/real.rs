//! What is taken out of real programs names their code as the programs themselves do.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use object::elf::{SHT_PROGBITS, SHT_SYMTAB};

use super::program::{cpp, go, run, skip};
use crate::{Elsewhere, Places, Plan, separate};
use profcol_elf::{Elf, LE};

/// Thousands of addresses all over the code.
fn addresses(program: &Path) -> Vec<u64> {
    let file = File::open(program).unwrap();
    let elf = Elf::read(&file).unwrap();
    let text = elf.find(b".text").unwrap();
    let (start, size) = (text.sh_addr.get(LE), text.sh_size.get(LE));
    let step = (size / 10_000).max(1) as usize;
    (start..start + size).step_by(step).collect()
}

/// Any release does: what it says of a program is compared with what it says itself of what is taken out. Distributions have
/// its release in its name.
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
        skip("there is no llvm-symbolizer");
        return None;
    };
    let mut input = symbolizer.stdin.take().unwrap();
    let asked: String = addresses.iter().map(|at| format!("{at:#x}\n")).collect();
    let asking = std::thread::spawn(move || input.write_all(asked.as_bytes()));
    let output = symbolizer.wait_with_output().unwrap();
    asking.join().unwrap().unwrap();
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
    let folder = tempfile::tempdir().unwrap();
    let stripped = folder.path().join("stripped");
    extract(debug, &stripped);
    let addresses = addresses(program);
    let (Some(expected), Some(found)) = (
        symbolize(program, &addresses),
        symbolize(&stripped, &addresses),
    ) else {
        return;
    };
    for name in says {
        assert!(expected.contains(name), "{name}:\n{expected}");
    }
    assert!(expected == found, "{}", first_difference(&expected, &found));
    if let Some(said) = run("readelf", &["-WSlns", stripped.to_str().unwrap()]) {
        assert!(!said.contains("Warning"), "{said}");
    }
}

fn first_difference(expected: &str, found: &str) -> String {
    let mut lines = expected.lines().zip(found.lines());
    let different = lines.find(|(expected, found)| expected != found);
    format!("{different:?}")
}

#[test]
fn names_of_cpp_stay_with_inlined_frames() {
    for (options, says) in [
        (&["-g"][..], &["innermost", "middle", "Outer::sum"][..]),
        (&["-g", "-gz"], &["innermost", "middle", "Outer::sum"]),
        (&["-g", "-static"], &["main"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let Some(program) = cpp(folder.path(), options) else {
            return;
        };
        check(&program, &program, says);
    }
}

#[test]
fn names_of_go_stay() {
    let folder = tempfile::tempdir().unwrap();
    if let Some(program) = go(folder.path()) {
        check(&program, &program, &["main.main"]);
    }
}

#[test]
fn names_of_rust_stay() {
    let program = std::env::current_exe().unwrap();
    check(&program, &program, &["profcol_debuginfo::tests"]);
}

/// Compresses its debug sections so, if that is asked for.
fn compress(program: &Path, how: &str) -> Option<()> {
    if !how.is_empty() {
        let how = format!("--compress-debug-sections={how}");
        run("objcopy", &[&how, program.to_str().unwrap()])?;
    }
    Some(())
}

#[test]
fn of_split_dwarf_the_symbols_are_left() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        for how in ["", "zlib-gnu", "zlib-gabi", "zstd"] {
            let folder = tempfile::tempdir().unwrap();
            let check_is = |options: &[&str], expected| {
                let program = cpp(folder.path(), options)?;
                compress(&program, how)?;
                let plan = Plan::strip(&File::open(&program).unwrap()).unwrap();
                assert_eq!(plan.elsewhere(), expected, "{options:?} {how}");
                assert_eq!(plan.contents().dwarf, expected.is_none());
                Some(program)
            };
            check_is(&["-g", version], None);
            let split = ["-g", "-gsplit-dwarf", version];
            let Some(program) = check_is(&split, Some(Elsewhere::Split)) else {
                return;
            };
            let stripped = folder.path().join("stripped");
            extract(&program, &stripped);
            // Where the .dwo file is not.
            fs::remove_file(folder.path().join("program-main.dwo")).unwrap();
            let Some(found) = symbolize(&stripped, &addresses(&program)) else {
                return;
            };
            assert!(found.contains("Outer::sum"), "{found}");
            assert!(!found.contains("innermost"), "{found}");
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
fn dwarf_in_common_with_other_files_gives_way_to_symbols() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = cpp(folder.path(), &["-g"]) else {
        return;
    };
    let text = program.to_str().unwrap();
    let link = folder.path().join("link");
    fs::write(&link, b"common.debug\0a build id").unwrap();
    let section = format!("--add-section=.gnu_debugaltlink={}", link.display());
    if run("objcopy", &[&section, text]).is_none() {
        return;
    }
    let plan = || Plan::strip(&File::open(&program).unwrap()).unwrap();
    assert_eq!(plan().elsewhere(), Some(Elsewhere::Common));
    assert!(!plan().contents().dwarf && plan().contents().all_symbols);
    // Where there are none it is better than nothing.
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
fn a_checksum_of_a_large_file_ends_when_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = cpp(folder.path(), &["-Wl,--build-id=none"]) else {
        return;
    };
    let debug = folder.path().join("program.debug");
    let link = format!("--add-gnu-debuglink={}", debug.display());
    fs::copy(&program, &debug).unwrap();
    if run("objcopy", &[&link, program.to_str().unwrap()]).is_none() {
        return;
    }
    let look = |most: u32| {
        let asked = Cell::new(0);
        let goes_on = || {
            asked.set(asked.get() + 1);
            asked.get() <= most
        };
        let places = Places {
            roots: &[folder.path().into()],
            executable: Path::new("/program"),
            directories: &[],
            goes_on: &goes_on,
        };
        let found = separate(&File::open(&program).unwrap(), &places);
        (found.is_some(), asked.get())
    };
    assert_eq!(look(u32::MAX), (true, 1), "it is small");
    // An executable may have anything behind its end.
    let longer = File::options().write(true).open(&debug).unwrap();
    longer.set_len(1 << 40).unwrap();
    assert_eq!(look(3), (false, 4), "hours before the end");
}

#[test]
fn dwarf_of_a_stripped_program_is_found_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = cpp(folder.path(), &["-g"]) else {
        return;
    };
    let full = folder.path().join("full");
    fs::copy(&program, &full).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let debug = folder.path().join("program.debug");
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
        let places = Places {
            roots: &[folder.path().join("nowhere"), folder.path().into()],
            executable: Path::new("/program"),
            directories: &["/debug".into()],
            goes_on: &|| true,
        };
        separate(&File::open(&program).unwrap(), &places).map(|found| found.path)
    };
    let check_at = |place: &str| {
        let to = folder.path().join(place);
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
    let other_folder = tempfile::tempdir().unwrap();
    let other = cpp(other_folder.path(), &["-g", "-DNDEBUG", "-O1"]).unwrap();
    fs::copy(other, &debug).unwrap();
    assert_eq!(look(), None, "it is of another version");
}
