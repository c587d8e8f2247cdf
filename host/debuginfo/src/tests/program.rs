//! Real programs, built with the compilers installed.

use profcol_test_skip::skip;
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

/// A C++ program with inlined functions.
pub fn cpp(directory: &Path, options: &[&str]) -> Option<PathBuf> {
    build(
        directory,
        "main.cpp",
        CPP,
        "g++",
        &[&["-O2"], options].concat(),
    )
}

pub fn go(directory: &Path) -> Option<PathBuf> {
    build(directory, "main.go", GO, "go", &["build"])
}

pub fn build(
    directory: &Path,
    source: &str,
    text: &str,
    compiler: &str,
    options: &[&str],
) -> Option<PathBuf> {
    let path = directory.join(source);
    std::fs::write(&path, text).unwrap();
    let program = directory.join("program");
    let mut building = Command::new(compiler);
    building.args(options).arg("-o").arg(&program).arg(&path);
    match building.output() {
        Ok(built) => {
            let stderr = String::from_utf8_lossy(&built.stderr);
            assert!(built.status.success(), "{building:?}: {stderr}");
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
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{command:?}: {stderr}");
            Some(String::from_utf8(output.stdout).unwrap())
        }
        Err(error) => {
            skip(&format!("{program}: {error}"));
            None
        }
    }
}
