//! Code in a non-ELF file: a Lisp image, which keeps frame pointers.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};

use profcol_test_harness::profile::Sample;
use profcol_test_harness::support::{root, skip};

use crate::chains::TIMEOUT;
use crate::host::{Profiler, Running, can_profile};

const LISP: &str = "/usr/bin/sbcl";
const CHAIN: [&str; 5] = ["leaf", "inner", "middle", "outer", "main"];

/// Minimum number of stacks that begin in the innermost function.
const MIN_SAMPLES: usize = 100;

/// The functions in an image, by file offset.
struct Image<'a> {
    path: &'a str,
    functions: Vec<(Range<u64>, String)>,
}

fn lisp(core: &Path) -> Command {
    let mut command = Command::new(LISP);
    command.env("CORE", core).stdout(Stdio::null());
    command
}

impl<'a> Image<'a> {
    /// From the list that the process writes, and from its mapping of the image.
    fn of(path: &'a str, pid: u32) -> Self {
        let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        let offset_of = |address: u64| {
            maps.lines()
                .filter(|line| line.ends_with(path))
                .find_map(|line| {
                    let words: Vec<_> = line.split_whitespace().collect();
                    let (start, end) = words[0].split_once('-').unwrap();
                    let (start, end, offset) = (hex(start), hex(end), hex(words[2]));
                    (start..end)
                        .contains(&address)
                        .then(|| address - start + offset)
                })
                .unwrap()
        };
        let names = fs::read_to_string(format!("{path}.names")).unwrap();
        let functions = names.lines().map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            let start = offset_of(hex(words[0]));
            (start..start + hex(words[1]), words[2].to_owned())
        });
        Self {
            path,
            functions: functions.collect(),
        }
    }

    /// The names of the user frames, `?` for frames elsewhere.
    fn names(&self, sample: &Sample) -> Vec<&str> {
        let frames = sample.frames.iter().filter(|frame| frame.kind != "kernel");
        frames
            .map(|frame| {
                let mut functions = self.functions.iter();
                functions
                    .find(|(range, _)| frame.file == self.path && range.contains(&frame.address))
                    .map_or("?", |(_, name)| name)
            })
            .collect()
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "the figures are of interest")]
fn shows_the_call_chain_in_a_lisp_image() {
    if !can_profile() {
        return;
    }
    if !Path::new(LISP).exists() {
        skip("no SBCL here; on Debian `apt-get install sbcl`");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let core = directory.path().join("chain.core");
    let built = lisp(&core)
        .args([
            "--non-interactive",
            "--no-sysinit",
            "--no-userinit",
            "--load",
        ])
        .arg(root().join("tests/ebpf/programs/chain.lisp"))
        .status();
    assert!(built.unwrap().success());
    let running = Running::of(lisp(&core).arg("--core").arg(&core).spawn().unwrap());
    let pid = running.pid();

    // Samples in the image, samples in the chain, and samples before its table.
    let path = core.to_str().unwrap();
    let of_image = |sample: &&Sample| {
        let innermost = sample.frames.iter().find(|frame| frame.kind != "kernel");
        sample.pid == pid && innermost.is_some_and(|frame| frame.file == path)
    };
    let profile = Profiler::start(499).until(TIMEOUT, |profile| {
        let samples = profile.samples.iter().filter(of_image);
        let whole = samples.filter(|sample| !sample.is_before_table());
        let has_begun = fs::metadata(format!("{path}.names")).is_ok_and(|names| names.len() > 0);
        has_begun && whole.map(|sample| sample.count).sum::<usize>() >= 2 * MIN_SAMPLES
    });
    let image = Image::of(path, pid);
    drop(running);

    let (mut exact, mut all) = (0, 0);
    let mut others = Vec::new();
    let samples = profile.samples.iter().filter(of_image);
    for sample in samples.filter(|sample| !sample.is_before_table()) {
        let names = image.names(sample);
        let Some(begin) = CHAIN.iter().position(|name| names[0] == *name) else {
            continue;
        };
        let chain = &CHAIN[begin..];
        all += sample.count;
        // Then follow the Lisp runtime and its C program, up to the first frame.
        let rest = names.strip_prefix(chain);
        let is_exact = rest.is_some_and(|rest| !rest.is_empty() && rest.iter().all(|n| *n == "?"));
        if is_exact && sample.end_reason.is_none() {
            exact += sample.count;
        } else {
            others.push((names, &sample.end_reason));
        }
    }
    println!("{exact} of {all} are exact, others: {others:?}");
    assert!(all >= MIN_SAMPLES, "only {all} samples");
    assert!(exact * 100 >= all * 99, "{exact} of {all}: {others:?}");
}
