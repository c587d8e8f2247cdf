//! Compares the cost of symbolization with `llvm-symbolizer` and `addr2line`: each runs as a process with the same
//! addresses, once (cold) and eleven times (ten of them warm).
//!
//! `cargo run --release -p profcol-symbols --example compare -- FILE... [-- COMMAND]`; needs bash and GNU time. The
//! command is another program to compare with; the file is appended as its last argument. The comparison uses CPU time,
//! which other load on the machine affects least.

#![allow(clippy::print_stdout, reason = "prints its results")]

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Duration;

use profcol_elf::{Elf, LE};

type Failure = Box<dyn std::error::Error>;

/// Addresses per file, spread over its code.
const COUNTS: [u64; 3] = [10, 1000, 10_000];
/// The fastest run counts, because the others were disturbed.
const TIMES: u32 = 3;
const WARM: u32 = 10;
/// Programs slower than this are not run again.
const TIMEOUT: Duration = Duration::from_secs(20);
/// User and system CPU time.
const TIMED: &str = r#"TIMEFORMAT="%3U %3S"; time "$@""#;

fn main() -> Result<(), Failure> {
    let build = [
        "build",
        "--quiet",
        "--release",
        "-p",
        "profcol-symbols",
        "--example",
        "symbolize",
    ];
    let built = Command::new("cargo").args(build).status()?;
    if !built.success() {
        return Err("the example `symbolize` does not build".into());
    }
    let own = std::env::current_exe()?.with_file_name("symbolize");
    let own = own.to_str().ok_or("path is not UTF-8")?;
    let mut arguments = std::env::args().skip(1);
    let files: Vec<String> = arguments.by_ref().take_while(|it| it != "--").collect();
    let other: Vec<String> = arguments.collect();
    for file in files {
        println!("{file}");
        let mut who: Vec<(&str, Vec<&str>)> = vec![
            ("profcol", vec![own, "--no-demangle", &file]),
            (
                "llvm-symbolizer",
                vec!["llvm-symbolizer", "--no-demangle", "--obj", &file],
            ),
            ("addr2line", vec!["addr2line", "-f", "-i", "-e", &file]),
        ];
        if let Some(name) = other.first() {
            let words = other.iter().chain([&file]);
            who.push((name, words.map(String::as_str).collect()));
        }
        for count in COUNTS {
            let addresses = addresses(&file, count)?;
            for (name, command) in &who {
                let (cold, memory) = measure(command, &addresses)?;
                let warm = match cold < TIMEOUT {
                    true => measure(command, &addresses.repeat(1 + WARM as usize))?.0,
                    false => Duration::MAX,
                };
                let rate = |time: Duration, times: u32| {
                    f64::from(times) * count as f64 / time.as_secs_f64().max(1e-3)
                };
                let warm = match warm.checked_sub(cold) {
                    Some(warm) if warm < Duration::MAX - cold => format!("{:.0}", rate(warm, WARM)),
                    _ => "-".to_owned(),
                };
                println!(
                    "  {count:>6} addresses  {name:16} cold {:>9.0}/s  warm {warm:>9}/s  {memory:>7} KiB",
                    rate(cold, 1)
                );
            }
        }
    }
    Ok(())
}

fn addresses(file: &str, count: u64) -> Result<String, Failure> {
    let file = File::open(file)?;
    let elf = Elf::read(&file)?;
    let mut sections = elf.sections.iter();
    let code = sections.find(|it| elf.name(it) == b".text");
    let code = code.ok_or("no .text section")?;
    let (start, size) = (code.sh_addr.get(LE), code.sh_size.get(LE));
    let step = (size / count).max(1);
    let all = (0..count).map(|it| format!("{:#x}\n", start + it * step + it % step.min(16)));
    Ok(all.collect())
}

/// CPU time, and peak memory in KiB.
fn measure(command: &[&str], addresses: &str) -> Result<(Duration, u64), Failure> {
    let directory = tempfile::tempdir()?;
    let input = directory.path().join("addresses");
    std::fs::write(&input, addresses)?;
    let mut best = (Duration::MAX, 0);
    for _ in 0..TIMES {
        let output = Command::new("bash")
            .args(["-c", TIMED, "bash", "time", "-f", "%M"])
            .args(command)
            .stdin(File::open(&input)?)
            .stdout(Stdio::null())
            .output()?;
        if !output.status.success() {
            return Err(format!("{command:?} failed").into());
        }
        let stderr = String::from_utf8(output.stderr)?;
        let mut last = stderr.lines().rev();
        let parts = last.next().unwrap_or_default().split(' ');
        let seconds: f64 = parts.map(str::parse::<f64>).sum::<Result<_, _>>()?;
        let took = Duration::from_secs_f64(seconds);
        let memory = last.next().unwrap_or_default().parse()?;
        best = best.min((took, memory));
        if took > TIMEOUT {
            break;
        }
    }
    Ok(best)
}
