//! What a sample costs on the way to Parca, in bytes and in time, in each of the three schemas.
//!
//! The samples are those of recorded calls of a real agent, whose bytes stand beside ours; and generated ones, of which
//! there are more.
//!
//! `cargo bench -p profcol-benches --bench parca`

#![expect(clippy::print_stdout, reason = "figures are printed")]

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use criterion::{Criterion, Throughput};
use profcol_benches::bodies::{self, Class};
use profcol_parca::ipc::{self, Compression};
use profcol_parca::service::{record, request};
use profcol_parca::v1::{Stacks, encode_samples, encode_stacks, encode_wanted};
use profcol_parca::{
    Frames, LabelRules, Pattern, StackIds, Table, raw, read_samples, to_model, v2,
};
use profcol_profile::pprof::gzip;
use profcol_profile::{Model, Profiles, Validation};

/// More than any record here takes.
const LIMIT: usize = 1 << 30;

/// The messages of a batch.
type Encode = fn(&Model) -> Vec<Bytes>;

const SCHEMAS: [(&str, Encode); 3] = [
    ("v1", encode_v1),
    ("v2", encode_v2),
    ("pprof", encode_pprof),
];

fn main() -> Result<()> {
    let agents = [agent("online-v1")?, agent("online-v2")?];
    println!("bytes per sample, ours after gzip:");
    for (name, agent) in ["v1", "v2"].into_iter().zip(&agents) {
        tell(&format!("{name}, 5 s of an agent"), agent);
        tell(&format!("{name}, 30 s of it"), &agent.joined());
    }
    let large = bodies::load(Class::Large)?;
    let generated = Profiles::from_wire(large[0].clone(), Validation::Reject)?;
    let generated = generated.profiles.into_model();

    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    for (name, model) in [
        ("recorded", &agents[0].joined().models[0]),
        ("generated", &generated),
    ] {
        let mut group = criterion.benchmark_group(format!("parca/{name}"));
        group.throughput(Throughput::Elements(samples(model)));
        for (schema, encode) in SCHEMAS {
            group.bench_function(format!("{schema}/encode"), |bencher| {
                bencher.iter(|| encode(black_box(model)));
            });
            let messages = encode(model);
            group.bench_function(format!("{schema}/gzip"), |bencher| {
                bencher.iter(|| {
                    messages
                        .iter()
                        .map(|message| gzip(message).len())
                        .sum::<usize>()
                });
            });
        }
        group.finish();
    }
    criterion.final_summary();
    Ok(())
}

/// The batches of a recorded agent.
struct Recorded {
    models: Vec<Model>,
    /// All messages together, those of the server too.
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

fn agent(folder: &str) -> Result<Recorded> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/golden/parca");
    let folder = Path::new(root).join(folder);
    let entries = fs::read_dir(&folder).with_context(|| format!("no {}", folder.display()))?;
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
        if let Some(told) = messages.get(2) {
            stacks.add(&batch(told)?)?;
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

fn tell(name: &str, recorded: &Recorded) {
    let count: u64 = recorded.models.iter().map(samples).sum();
    let per_sample = |bytes: usize| bytes as f64 / count as f64;
    let mut line = format!(
        "{name}: {count} samples, theirs {:.1}",
        per_sample(recorded.bytes)
    );
    for (schema, encode) in SCHEMAS {
        let messages = recorded.models.iter().flat_map(encode);
        let bytes = messages.map(|message| gzip(&message).len()).sum();
        line += &format!(", {schema} {:.1}", per_sample(bytes));
    }
    println!("{line}");
}

/// Observations, of which several may stand in one row.
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

/// The dialogue, with what the server asks: ids are hashes, which gzip does not make smaller.
fn encode_v1(model: &Model) -> Vec<Bytes> {
    let table = Table::new(model, &rules());
    let frames = Frames::new(model);
    let mut ids = StackIds::new(&frames);
    let samples = encode_samples(&table, &mut ids, Compression::None).expect("can be encoded");
    let mut rows = table.stacks.clone();
    rows.sort_unstable_by_key(|row| row.get());
    rows.dedup();
    let stacks: Vec<_> = rows.iter().map(|&row| (ids.id(row), Some(row))).collect();
    let asked = encode_wanted(stacks.iter().map(|(id, _)| &id[..])).expect("can be encoded");
    let stacks = encode_stacks(&frames, &stacks, Compression::None).expect("can be encoded");
    [samples, asked, stacks]
        .map(|record| request(&record))
        .to_vec()
}

fn encode_v2(model: &Model) -> Vec<Bytes> {
    let table = Table::new(model, &rules());
    let frames = Frames::new(model);
    let mut ids = StackIds::new(&frames);
    let record = v2::encode(&table, &frames, &mut ids, Compression::None);
    vec![request(&record.expect("can be encoded"))]
}

fn encode_pprof(model: &Model) -> Vec<Bytes> {
    let table = Table::new(model, &rules());
    vec![raw::encode(&table, &Frames::new(model)).expect("can be encoded")]
}
