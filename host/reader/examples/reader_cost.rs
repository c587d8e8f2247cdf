//! Compares reading in this process with reading in another one, which has no sandbox here.
//!
//! * `compare FILE PLACES ROUNDS` prints addresses per second: of the first round, in which tables are built, and of the others.
//! * `extract FILE ROUNDS` prints megabytes of debuginfo per second.

use std::fs::File;
use std::io::{Write, stdout};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use profcol_elf::Elf;
use profcol_reader::{
    DebuginfoReader, ExtractOptions, FileAddress, Limits, OpenExecutable, Reader, Readers, serve,
    supervise,
};
use profcol_symbols::{OnHost, Style};

/// Places of one request, as in `symbolize`.
const CHUNK: usize = 64;
const SLICE: Duration = Duration::from_millis(10);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let socket = || std::io::stdin().as_fd().try_clone_to_owned();
    match words[..] {
        ["supervisor"] => Ok(supervise(socket()?, |_, _, _| vec!["reader".to_owned()])?),
        ["reader"] => Ok(serve(socket()?, String::new())?),
        ["extract", file, rounds] => extract(file, rounds.parse()?),
        ["compare", file, addresses, rounds] => compare(file, addresses.parse()?, rounds.parse()?),
        _ => Err("usage: compare FILE PLACES ROUNDS, or extract FILE ROUNDS".into()),
    }
}

fn compare(path: &str, addresses: u64, rounds: u32) -> Result<(), Box<dyn std::error::Error>> {
    let file = Arc::new(File::open(path)?);
    let elf = Elf::read(&*file)?;
    let code = elf.loaded(0).max_by_key(|segment| segment.file_size);
    let code = code.ok_or("no code")?;
    // Sorted, as the backlog hands them out.
    let at = |number| FileAddress::Virtual(code.address + code.file_size / addresses * number);
    let addresses: Vec<FileAddress> = (0..addresses).map(at).collect();
    for readers in [Readers::default(), Readers::start(&["supervisor"])?] {
        let limits = Limits::new(256 << 20, false);
        let mut reader = Reader::new(&readers, limits, Rc::new(|| true), |_| {});
        let debug = vec!["/usr/lib/debug".into()];
        let on_host = OnHost::new(vec!["/".into()], path.into(), debug, || true);
        let executable = OpenExecutable {
            file: Arc::clone(&file),
            companions: Rc::new(on_host),
            max_unpacked: 256 << 20,
        };
        let began = Instant::now();
        let opened = reader.open(1, executable);
        opened.map_err(|failed| format!("{failed:?}"))?;
        let mut cold = Duration::ZERO;
        let mut named = 0;
        for round in 0..=rounds {
            for chunk in addresses.chunks(CHUNK) {
                let mut rest = chunk;
                while !rest.is_empty() {
                    let found = reader.find(1, rest, Some(Style::Short), SLICE);
                    let found = found.map_err(|failed| format!("{failed:?}"))?;
                    named += found.answers.iter().filter(|it| it.is_ok()).count();
                    rest = rest.get(found.answers.len()..).unwrap_or_default();
                }
            }
            if round == 0 {
                cold = began.elapsed();
            }
        }
        let warm = began.elapsed() - cold;
        let per_second = |rounds: u32, time: Duration| {
            addresses.len() as f64 * f64::from(rounds) / time.as_secs_f64()
        };
        writeln!(
            stdout(),
            "{readers:?}: cold {:.0}/s, warm {:.0}/s, {named} named",
            per_second(1, cold),
            per_second(rounds, warm)
        )?;
    }
    Ok(())
}

fn extract(path: &str, rounds: u32) -> Result<(), Box<dyn std::error::Error>> {
    let options = ExtractOptions {
        strip: true,
        max_bytes: u64::MAX,
        max_compression_time: None,
        build_id: None,
    };
    for readers in [Readers::default(), Readers::start(&["supervisor"])?] {
        let began = Instant::now();
        let mut bytes = 0;
        for _ in 0..rounds {
            // One for each upload.
            let mut reader = DebuginfoReader::new(&readers);
            reader.plan(File::open(path)?, &options, &|| None, &|| true)?;
            while let Some(piece) = reader.next(&|| true)? {
                bytes += piece.len();
            }
        }
        let time = began.elapsed();
        let megabytes = bytes as f64 / 1e6 / time.as_secs_f64();
        writeln!(
            stdout(),
            "{readers:?}: {megabytes:.0} MB/s, {:?} each",
            time / rounds
        )?;
    }
    Ok(())
}
