//! The cost per sample of each step of `pipeline/profile`, compared with the naive implementation on the generated
//! types (`profcol_benches::naive`). The cost per sample must not grow with the number of batches.
//!
//! `cargo bench -p profcol-benches --bench profile -- merge/small`

use std::hint::black_box;
use std::time::Duration;

use bytes::Bytes;
use criterion::measurement::WallTime;
use criterion::{BatchSize, BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest as Request;
use profcol_benches::bodies::{self, Class, count_samples};
use profcol_benches::naive;
use profcol_profile::testkit::in_descending_order;
use profcol_profile::{Bound, Model, Profiles, Validation, merge, split};
use prost::Message;

const CLASSES: [Class; 2] = [Class::Small, Class::Large];

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    for class in CLASSES {
        let bodies = bodies::load(class).expect("the recorded bodies are available");
        codec(&mut criterion, class, &bodies[0]);
        splitting(&mut criterion, class, &bodies[0]);
        merging(&mut criterion, class, &bodies);
    }
    criterion.final_summary();
}

/// Validates, decodes and encodes a body.
fn codec(criterion: &mut Criterion, class: Class, body: &Bytes) {
    let mut group = group(criterion, &format!("codec/{class}"), samples([body]));
    group.bench_function("validate", |bencher| {
        bencher.iter(|| receive(black_box(body)))
    });
    // As the Collector's encoder writes it.
    let descending = Bytes::from(in_descending_order(body).expect("recorded bodies are valid"));
    group.bench_function("validate/descending", |bencher| {
        bencher.iter(|| receive(black_box(&descending)))
    });
    group.bench_function("decode/profcol", |bencher| {
        bencher.iter(|| decode(black_box(body)))
    });
    group.bench_function("decode/naive", |bencher| {
        bencher.iter(|| naive_decode(black_box(body)))
    });
    let model = decode(body);
    group.bench_function("encode/profcol", |bencher| {
        bencher.iter(|| encode(black_box(&model)))
    });
    let request = naive_decode(body);
    group.bench_function("encode/naive", |bencher| {
        bencher.iter(|| black_box(&request).encode_to_vec())
    });
    group.finish();
}

/// Splits a batch into ten, or by the size of the largest of those; there is no naive implementation of the latter.
fn splitting(criterion: &mut Criterion, class: Class, body: &Bytes) {
    let count = samples([body]);
    let mut group = group(criterion, &format!("split/{class}"), count);
    let model = decode(body);
    let by_samples = Bound::Samples(
        usize::try_from(count)
            .expect("samples fit into memory")
            .div_ceil(10),
    );
    let lengths = split(&model, by_samples)
        .pieces
        .into_iter()
        .map(|piece| encode(&piece).len());
    let by_bytes = Bound::Bytes(lengths.max().unwrap_or_default());
    group.bench_function("samples", |bencher| {
        bencher.iter(|| split(black_box(&model), by_samples))
    });
    group.bench_function("bytes", |bencher| {
        bencher.iter(|| split(black_box(&model), by_bytes))
    });
    group.finish();
}

/// Merges the received bytes of 1, 10 and 100 batches into those of one; both batches that repeat each other, like
/// those of a single host, and batches without common content.
fn merging(criterion: &mut Criterion, class: Class, bodies: &[Bytes]) {
    for count in [1, 10, 100] {
        let alike: Vec<Bytes> = bodies.iter().cycle().take(count).cloned().collect();
        let distinct: Vec<Bytes> = alike
            .iter()
            .enumerate()
            .map(|(number, body)| renamed(body, number))
            .collect();
        let mut group = group(criterion, &format!("merge/{class}"), samples(&alike));
        for (kind, bodies) in [("alike", &alike), ("distinct", &distinct)] {
            group.bench_function(
                BenchmarkId::new(format!("profcol/{kind}"), count),
                |bencher| {
                    bencher.iter(|| Profiles::merge(bodies.iter().map(receive)).to_wire());
                },
            );
            group.bench_function(
                BenchmarkId::new(format!("naive/{kind}"), count),
                |bencher| {
                    bencher.iter(|| {
                        naive::merge(bodies.iter().map(naive_decode).collect()).encode_to_vec()
                    });
                },
            );
            let models: Vec<Model> = bodies.iter().map(decode).collect();
            group.bench_function(
                BenchmarkId::new(format!("profcol, merge alone/{kind}"), count),
                |bencher| {
                    bencher.iter(|| merge(black_box(&models)));
                },
            );
            let requests: Vec<Request> = bodies.iter().map(naive_decode).collect();
            group.bench_function(
                BenchmarkId::new(format!("naive, merge alone/{kind}"), count),
                |bencher| {
                    bencher.iter_batched(|| requests.clone(), naive::merge, BatchSize::LargeInput);
                },
            );
        }
        group.finish();
    }
}

fn group<'a>(
    criterion: &'a mut Criterion,
    name: &str,
    samples: u64,
) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(samples));
    group
}

fn samples<'a>(bodies: impl IntoIterator<Item = &'a Bytes>) -> u64 {
    let count = |body: &Bytes| count_samples(body.clone()).expect("the body is valid");
    bodies.into_iter().map(count).sum()
}

fn receive(body: &Bytes) -> Profiles {
    Profiles::from_wire(body.clone(), Validation::Reject)
        .expect("the body is valid")
        .profiles
}

fn decode(body: &Bytes) -> Model {
    receive(body).into_model()
}

fn encode(model: &Model) -> Bytes {
    Profiles::from_model(model.clone()).to_wire()
}

fn naive_decode(body: &Bytes) -> Request {
    Request::decode(body.clone()).expect("the body is valid")
}

/// The same profile of another program: each string includes the number.
fn renamed(body: &Bytes, number: usize) -> Bytes {
    let mut request = naive_decode(body);
    if let Some(dictionary) = &mut request.dictionary {
        for text in dictionary.string_table.iter_mut().skip(1) {
            text.push_str(&format!(".{number}"));
        }
    }
    request.encode_to_vec().into()
}
