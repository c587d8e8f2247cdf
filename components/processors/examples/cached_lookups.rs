//! Compares how `symbolize` and another program look up addresses that were symbolized before, in addresses per
//! second of CPU time.
//!
//! `cargo run --release -p profcol-processors --example cached_lookups -- FILE [COMMAND]`; needs bash. The command gets
//! the file as its last argument, and the addresses on its standard input, once and eleven times.

#![allow(clippy::print_stdout, reason = "prints its results")]

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use profcol_component::testkit::context;
use profcol_component::{
    Answer, Batch, BuildId, Consumer, Executable, Executables, Processor, Stop,
};
use profcol_config::{Problems, Sources, yaml};
use profcol_elf::{Elf, LE};
use profcol_profile::{
    AttributeRef, Interner, Location, LocationIdx, LocationRef, Mapping, MappingRef, Model,
    Profile, Profiles, SampleRef, Samples, StringIdx,
};
use tokio::task::JoinSet;

type Failure = Box<dyn std::error::Error>;

/// Addresses per batch, spread over the code.
const COUNTS: [u64; 2] = [1000, 10_000];
/// The shortest of all runs counts, since the others were disturbed.
const TIMES: u32 = 5;
const ROUNDS: u32 = 10;
const BUILD_ID: &str = "1dea";
const OPTIONS: &str = "{timeout: 60s, max_memory: 1073741824}";
/// User and system CPU time.
const TIMED: &str = r#"TIMEFORMAT="%3U %3S"; time "$@""#;

#[derive(Default)]
struct Last(Mutex<Option<Profiles>>);

#[async_trait]
impl Consumer for Last {
    async fn consume(&self, batch: Batch) -> Answer {
        *self.0.lock() = Some(batch.profiles);
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let path: PathBuf = arguments.next().ok_or("no file given")?.into();
    let command: Vec<String> = arguments.collect();
    let mut processors = profcol_processors::ALL.iter();
    let entry = processors.find(|entry| entry.name == "symbolize");
    let entry = entry.ok_or("no such processor")?;
    let mut sources = Sources::default();
    let source = sources.add("options", OPTIONS, None)?;
    let options = yaml::parse(&sources, source).map_err(|_| "no YAML")?;
    let config = (entry.load)(&options, &mut Problems::default()).ok_or("wrong options")?;
    let context = context("symbolize");
    let processor: Arc<dyn Processor> = (entry.build)(&*config, &context)?.into();
    processor.start().await?;
    let stop = Stop::new();
    let last = Arc::new(Last::default());
    let mut running = JoinSet::new();
    running.spawn(Arc::clone(&processor).run(last.clone(), stop.clone()));
    context.shared.get::<Executables>().offer(&Executable {
        build_id: BuildId::Gnu(BUILD_ID.to_owned()),
        hash: String::new(),
        path: path.clone(),
        pid: std::process::id(),
        file: Arc::new(File::open(&path)?),
    });
    for count in COUNTS {
        let addresses = addresses(&path, count)?;
        let batch = batch(&addresses);
        processor.process(Batch::new(batch.clone()), &*last).await?;
        let symbolized = last.0.lock().take();
        let symbolized = symbolized.as_ref().map_or(0, symbolized_locations);
        let mut best = Duration::MAX;
        for _ in 0..TIMES {
            let before = on_cpu()?;
            for _ in 0..ROUNDS {
                processor.process(Batch::new(batch.clone()), &*last).await?;
            }
            best = best.min(on_cpu()? - before);
        }
        let rate = |time: Duration| f64::from(ROUNDS) * count as f64 / time.as_secs_f64().max(1e-3);
        println!(
            "{count:>6} addresses, {symbolized} of them symbolized  symbolize {:>9.0}/s",
            rate(best)
        );
        if !command.is_empty() {
            let once: String = addresses.iter().map(|it| format!("{it:#x}\n")).collect();
            let cold = measure(&command, &path, &once)?;
            let warm = measure(&command, &path, &once.repeat(1 + ROUNDS as usize))?;
            let warm = warm.saturating_sub(cold);
            println!("{:>26} {:>9.0}/s", "the command again", rate(warm));
        }
    }
    stop.cancel();
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}

fn addresses(path: &PathBuf, count: u64) -> Result<Vec<u64>, Failure> {
    let file = File::open(path)?;
    let elf = Elf::read(&file)?;
    let mut sections = elf.sections.iter();
    let code = sections.find(|it| elf.name(it) == b".text");
    let code = code.ok_or("no .text in it")?;
    let (start, size) = (code.sh_addr.get(LE), code.sh_size.get(LE));
    let step = (size / count).max(1);
    Ok((0..count)
        .map(|it| start + it * step + it % step.min(16))
        .collect())
}

/// A sample for each address.
fn batch(addresses: &[u64]) -> Profiles {
    let mut rows = Interner::new();
    let key = rows.string("process.executable.build_id.gnu");
    let id = rows.attribute(AttributeRef {
        key,
        value: &BUILD_ID.into(),
        unit: StringIdx::UNSET,
    });
    let filename = rows.string("/code");
    let mapping = rows.mapping(MappingRef {
        mapping: Mapping {
            filename,
            ..Mapping::default()
        },
        attributes: &[id],
    });
    let mut samples = Samples::default();
    for &address in addresses {
        let location = rows.location(LocationRef {
            location: Location { mapping, address },
            lines: &[],
            attributes: &[],
        });
        samples.push(SampleRef {
            stack: rows.stack(&[location]),
            values: &[1],
            ..SampleRef::default()
        });
    }
    let profile = Profile {
        samples,
        ..Profile::default()
    };
    Profiles::from_model(Model::of_profile(rows.finish(), None, profile))
}

fn symbolized_locations(profiles: &Profiles) -> usize {
    let locations = &profiles.model().dictionary.locations;
    let numbers = 1..locations.rows().len() as u32;
    let lines = numbers.map(|it| locations.get(LocationIdx::new(it)).lines.len());
    lines.filter(|&lines| lines > 0).count()
}

/// CPU time of this thread.
fn on_cpu() -> Result<Duration, Failure> {
    let output = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let first = output.split(' ').next().unwrap_or_default();
    Ok(Duration::from_nanos(first.parse()?))
}

fn measure(command: &[String], path: &PathBuf, input: &str) -> Result<Duration, Failure> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), input)?;
    let mut best = Duration::MAX;
    for _ in 0..TIMES {
        let output = Command::new("bash")
            .args(["-c", TIMED, "bash"])
            .args(command)
            .arg(path)
            .stdin(File::open(file.path())?)
            .stdout(Stdio::null())
            .output()?;
        if !output.status.success() {
            return Err(format!("{command:?} failed").into());
        }
        let output = String::from_utf8(output.stderr)?;
        let parts = output.lines().last().unwrap_or_default().split(' ');
        let seconds: f64 = parts.map(str::parse::<f64>).sum::<Result<_, _>>()?;
        best = best.min(Duration::from_secs_f64(seconds));
    }
    Ok(best)
}
