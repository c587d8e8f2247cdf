//! Real programs, built by the compilers that are there.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const CPP: &str = r#"
#include <string>
#include <vector>

static inline int innermost(int x) {
    std::string text(x & 7, 'x');
    return x * 31 + static_cast<int>(text.size());
}

static inline __attribute__((always_inline)) int middle(int x) {
    return innermost(x) ^ innermost(x + 1);
}

struct Outer {
    std::vector<int> numbers;
    __attribute__((noinline)) int sum() const {
        int sum = 0;
        for (int number : numbers) sum += middle(number);
        return sum;
    }
};

int main(int count, char **) {
    Outer outer;
    for (int i = 0; i < 100 * count; i++) outer.numbers.push_back(middle(i));
    return outer.sum() & 1;
}
"#;

const GO: &str = r#"
package main

import "strings"

func inlined(n int) int { return n*31 + 7 }

func main() {
	var text strings.Builder
	for i := 0; i < 10; i++ {
		text.WriteByte(byte('a' + inlined(i)%26))
	}
	println(text.String())
}
"#;

/// Tells that something could not be tested; in CI that is a failure.
pub fn skip(missing: &str) {
    let is_ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(!is_ci, "{missing}");
    // Not by the macros, whose output is shown of failed tests alone.
    let _ = writeln!(std::io::stderr(), "skipped: {missing}");
}

/// A program of C++ with inlined functions.
pub fn cpp(folder: &Path, options: &[&str]) -> Option<PathBuf> {
    build(
        folder,
        "main.cpp",
        CPP,
        "g++",
        &[&["-O2"], options].concat(),
    )
}

pub fn go(folder: &Path) -> Option<PathBuf> {
    build(folder, "main.go", GO, "go", &["build"])
}

pub fn build(
    folder: &Path,
    source: &str,
    text: &str,
    compiler: &str,
    options: &[&str],
) -> Option<PathBuf> {
    let path = folder.join(source);
    std::fs::write(&path, text).unwrap();
    let program = folder.join("program");
    let mut building = Command::new(compiler);
    building.args(options).arg("-o").arg(&program).arg(&path);
    match building.output() {
        Ok(built) => {
            let said = String::from_utf8_lossy(&built.stderr);
            assert!(built.status.success(), "{building:?}: {said}");
            Some(program)
        }
        Err(error) => {
            skip(&format!("{compiler}: {error}"));
            None
        }
    }
}

pub fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    match command.args(arguments).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{command:?}: {said}");
            Some(String::from_utf8(output.stdout).unwrap())
        }
        Err(error) => {
            skip(&format!("{program}: {error}"));
            None
        }
    }
}
