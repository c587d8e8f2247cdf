//! What names cost, here and in `llvm-symbolizer` and `addr2line`: each as a process of its own that gets the same
//! addresses, once (cold) and eleven times (of which ten are warm).
//!
//! `cargo run --release -p profcol-symbols --example compare -- FILE... [-- COMMAND]`; needs bash and GNU time. The
//! command is one more program to compare with, which gets the file as its last argument. What counts is time on a
//! CPU, which other work on the machine disturbs least.

#![allow(clippy::print_stdout, reason = "the figures are what it is for")]

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Duration;

use profcol_elf::{Elf, LE};

type Failure = Box<dyn std::error::Error>;

/// Addresses of each file, spread over its code.
const COUNTS: [u64; 3] = [10, 1000, 10_000];
/// Of all times the shortest counts, since the others were disturbed.
const TIMES: u32 = 3;
const WARM: u32 = 10;
/// Who took longer is not asked for more.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time on a CPU, by the programs themselves and for them in the kernel.
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
    let own = own.to_str().ok_or("a path that is text")?;
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
                let warm = match cold < PATIENCE {
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
    let code = code.ok_or("no .text in it")?;
    let (start, size) = (code.sh_addr.get(LE), code.sh_size.get(LE));
    let step = (size / count).max(1);
    let all = (0..count).map(|it| format!("{:#x}\n", start + it * step + it % step.min(16)));
    Ok(all.collect())
}

/// How long it takes a CPU, and KiB of memory at most.
fn measure(command: &[&str], addresses: &str) -> Result<(Duration, u64), Failure> {
    let folder = tempfile::tempdir()?;
    let input = folder.path().join("addresses");
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
        let told = String::from_utf8(output.stderr)?;
        let mut last = told.lines().rev();
        let parts = last.next().unwrap_or_default().split(' ');
        let seconds: f64 = parts.map(str::parse::<f64>).sum::<Result<_, _>>()?;
        let took = Duration::from_secs_f64(seconds);
        let memory = last.next().unwrap_or_default().parse()?;
        best = best.min((took, memory));
        if took > PATIENCE {
            break;
        }
    }
    Ok(best)
}
