//! Fuzz targets: programs of libFuzzer under `--cfg fuzzing`, which `cargo xtask fuzz` sets. Otherwise each is a program
//! that takes files, and a test of its seeds, without libFuzzer and its C++ compiler.

use std::fs;
use std::path::{Path, PathBuf};

/// Defines the target of a binary: a function of any input, and what to do before the first one.
#[macro_export]
macro_rules! fuzz_target {
    ($(init: $init:expr,)? |$data:ident: &[u8]| $body:block) => {
        #[cfg(fuzzing)]
        libfuzzer_sys::fuzz_target!($(init: $init,)? |$data: &[u8]| $body);

        #[cfg(not(fuzzing))]
        fn fuzz($data: &[u8]) $body

        #[cfg(not(fuzzing))]
        #[cfg_attr(test, allow(dead_code, reason = "the tests have a main function of their own"))]
        fn main() {
            $($init;)?
            $crate::run(std::env::args_os().skip(1).map(Into::into), fuzz);
        }

        #[cfg(all(test, not(fuzzing)))]
        #[test]
        fn accepts_its_seeds() {
            $($init;)?
            $crate::run($crate::seeds(module_path!()), fuzz);
        }
    };
}

/// Runs a target on the contents of files.
#[expect(clippy::print_stdout, reason = "the last file is the one that fails")]
pub fn run(files: impl IntoIterator<Item = PathBuf>, target: fn(&[u8])) {
    for file in files {
        println!("{}", file.display());
        let data = fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        target(&data);
    }
}

/// The committed seeds of a target.
pub fn seeds(target: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("seeds")
        .join(target);
    let entries =
        fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("readable").path())
        .collect();
    assert!(!files.is_empty(), "{} is empty", directory.display());
    files
}
