//! `c++filt` writes the names of D's whole standard library as we do.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test tells what it skipped, and its failures are panics"
)]

use std::io::Write;
use std::process::{Command, Stdio};

use profcol_symbols::{Style, demangle};

/// Mangled names of the library that comes with GDC.
fn names() -> Vec<String> {
    let mut names = Vec::new();
    for library in ["libgphobos.a", "libgdruntime.a"] {
        let mut gdc = Command::new("gdc");
        let Ok(found) = gdc.arg(format!("-print-file-name={library}")).output() else {
            return names;
        };
        let path = String::from_utf8(found.stdout).unwrap();
        let listed = Command::new("nm").args(["-g", path.trim()]).output();
        let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
        let words = listed
            .lines()
            .filter_map(|line| line.split(' ').next_back());
        names.extend(words.filter(|it| it.starts_with("_D")).map(str::to_owned));
    }
    names.sort();
    names.dedup();
    // It takes these for names of parts.
    names.retain(|name| !name.contains('.'));
    names
}

#[test]
fn names_of_d_are_those_of_gnu_tools() {
    let names = names();
    if names.is_empty() {
        assert!(std::env::var_os("CI").is_none(), "CI has gdc");
        println!("skipped: no gdc");
        return;
    }
    let mut filter = Command::new("c++filt");
    let filter = filter.args(["-s", "dlang"]);
    let mut filter = filter
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = filter.stdin.take().unwrap();
    let asked = names.join("\n");
    let writing = std::thread::spawn(move || input.write_all(asked.as_bytes()));
    let output = filter.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    let theirs = String::from_utf8(output.stdout).unwrap();
    let mut different = Vec::new();
    let mut written = 0;
    for (name, theirs) in names.iter().zip(theirs.lines()) {
        // Beyond our bound on the length there is no name.
        let ours = demangle(name, Style::Full).unwrap_or_else(|| name.clone());
        written += usize::from(theirs != name);
        if ours != theirs && theirs.len() <= 4 << 10 {
            different.push(format!("{name}\n  theirs {theirs}\n  ours   {ours}"));
        }
    }
    println!(
        "{written} of {} names are written by it; {} differ",
        names.len(),
        different.len()
    );
    different.truncate(20);
    assert!(written > 10_000);
    assert!(different.is_empty(), "{}", different.join("\n"));
}
