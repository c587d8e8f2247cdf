//! Bytes and CPU time per sample when sending to Parca, in each of the three schemas.
//!
//! The input is recorded calls of a real agent, whose size is shown for comparison, and larger generated profiles.
//!
//! `cargo bench -p profcol-benches --bench parca`

#![expect(clippy::print_stdout, reason = "prints its results")]

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use profcol_benches::bodies::{self, Class};
use profcol_parca::ipc;
use profcol_parca::service::{record, request};
use profcol_parca::v1::{Stacks, encode_samples, encode_stack_request, encode_stacks};
use profcol_parca::{
    Frames, LabelRules, Pattern, StackIds, Table, raw, read_samples, to_model, v2,
};
use profcol_pprof::gzip;
use profcol_profile::{Model, Profiles, Validation};
use profcol_test_harness::procfs::running_time;

/// More than any record here needs.
const LIMIT: usize = 1 << 30;

/// Encodes the messages of a batch.
type Encode = fn(&Model) -> Vec<Bytes>;

const SCHEMAS: [(&str, Encode); 3] = [
    ("v1", encode_v1),
    ("v2", encode_v2),
    ("pprof", encode_pprof),
];

fn main() -> Result<()> {
    let large = bodies::load(Class::Large)?;
    let generated = Profiles::from_wire(large[0].clone(), Validation::Reject)?;
    println!(
        "samples; for each schema bytes per sample after gzip, CPU time of encoding and of gzip per 100,000 samples"
    );
    for (directory, name) in [("online-v1", "agent, v1"), ("online-v2", "agent, v2")] {
        let recorded = agent(directory)?;
        report(&format!("{name}, 5 s a batch"), &recorded)?;
        report(&format!("{name}, 30 s a batch"), &recorded.joined())?;
    }
    let generated = Recorded {
        models: vec![generated.profiles.into_model()],
        bytes: large[0].len(),
    };
    report("generated", &generated)
}

/// The batches of a recorded agent.
struct Recorded {
    models: Vec<Model>,
    /// All messages, including those of the server.
    bytes: usize,
}

impl Recorded {
    fn joined(&self) -> Self {
        let models = self.models.iter().cloned().map(Profiles::from_model);
        Self {
            models: vec![Profiles::merge(models).into_model()],
            bytes: self.bytes,
        }
    }
}

fn agent(directory: &str) -> Result<Recorded> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/parca");
    let directory = Path::new(root).join(directory);
    let entries =
        fs::read_dir(&directory).with_context(|| format!("no {}", directory.display()))?;
    let mut paths = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "frames"));
    paths.sort();
    let mut recorded = Recorded {
        models: Vec::new(),
        bytes: 0,
    };
    for path in paths {
        let messages = messages(&fs::read(&path)?);
        recorded.bytes += messages.iter().map(Vec::len).sum::<usize>();
        let batch = |message: &Vec<u8>| {
            ipc::read(record(message)?, LIMIT)?.context("a record without rows")
        };
        let mut stacks = Stacks::default();
        if let Some(received) = messages.get(2) {
            stacks.add(&batch(received)?)?;
        }
        let samples = read_samples(&batch(&messages[0])?)?;
        recorded.models.push(to_model(&samples, &stacks)?);
    }
    Ok(recorded)
}

/// The messages of a recorded call: a byte for the direction, the length, and the message.
fn messages(mut file: &[u8]) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    while let Some(([_, length @ ..], rest)) = file.split_first_chunk::<5>() {
        let (message, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        messages.push(message.to_vec());
        file = rest;
    }
    messages
}

fn report(name: &str, recorded: &Recorded) -> Result<()> {
    let count: u64 = recorded.models.iter().map(samples).sum();
    let per_sample = |bytes: usize| bytes as f64 / count as f64;
    println!(
        "{name}: {count}, as recorded {:.1} bytes",
        per_sample(recorded.bytes)
    );
    for (schema, encode) in SCHEMAS {
        let encode_all = || -> Vec<Bytes> { recorded.models.iter().flat_map(encode).collect() };
        let messages = encode_all();
        let pack_all = || -> usize { messages.iter().map(|message| gzip(message).len()).sum() };
        let bytes = per_sample(pack_all());
        let encoding = cpu_time(encode_all)? * 100_000 / u32::try_from(count)?;
        let packing = cpu_time(pack_all)? * 100_000 / u32::try_from(count)?;
        println!("  {schema:5} {bytes:6.1} bytes {encoding:8.0?} {packing:8.0?}");
    }
    Ok(())
}

/// Mean CPU time of a round.
fn cpu_time<T>(mut work: impl FnMut() -> T) -> Result<Duration> {
    const MIN_DURATION: Duration = Duration::from_millis(300);
    let process = std::process::id();
    let begun = running_time(process)?;
    for round in 1.. {
        black_box(work());
        let spent = running_time(process)?.saturating_sub(begun);
        if spent >= MIN_DURATION {
            return Ok(spent / round);
        }
    }
    Ok(MIN_DURATION)
}

/// Counts observations, several of which may share a row.
fn samples(model: &Model) -> u64 {
    let samples = model.profiles().flat_map(|profile| profile.samples.iter());
    samples
        .map(|sample| sample.values.len().max(sample.timestamps.len()) as u64)
        .sum()
}

fn rules() -> LabelRules {
    let left_out = ["process.*", "host.*", "os.*", "telemetry.*", "container.id"];
    LabelRules {
        left_out: left_out.map(Pattern::new).to_vec(),
        ..LabelRules::default()
    }
}

/// The dialogue, including the server's requests: ids are hashes, which gzip cannot compress.
fn encode_v1(model: &Model) -> Vec<Bytes> {
    let table = Table::new(model, &rules());
    let frames = Frames::new(model);
    let mut ids = StackIds::new(&frames);
    let samples = encode_samples(&table, &mut ids).expect("can be encoded");
    let mut rows = table.stacks.clone();
    rows.sort_unstable_by_key(|row| row.get());
    rows.dedup();
    let stacks: Vec<_> = rows.iter().map(|&row| (ids.id(row), Some(row))).collect();
    let requested =
        encode_stack_request(stacks.iter().map(|(id, _)| &id[..])).expect("can be encoded");
    let stacks = encode_stacks(&frames, &stacks).expect("can be encoded");
    [samples, requested, stacks]
        .map(|record| request(&record))
        .to_vec()
}

fn encode_v2(model: &Model) -> Vec<Bytes> {
    let table = Table::new(model, &rules());
    let frames = Frames::new(model);
    let mut ids = StackIds::new(&frames);
    let record = v2::encode(&table, &frames, &mut ids);
    vec![request(&record.expect("can be encoded"))]
}

fn encode_pprof(model: &Model) -> Vec<Bytes> {
    let table = Table::new(model, &rules());
    vec![raw::encode(&table, &Frames::new(model)).expect("can be encoded")]
}
