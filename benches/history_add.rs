//! What `live_view` spends on each batch that it keeps, while nobody looks: time per sample.
//!
//! `cargo bench -p profcol-benches --bench history_add`

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use profcol_benches::bodies::{self, Class, count_samples};
use profcol_component::DeferredSymbols;
use profcol_history::{History, Limits};
use profcol_profile::{Model, Profiles, Validation};

const CLASSES: [Class; 2] = [Class::Small, Class::Large];

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let mut group = criterion.benchmark_group("history_add");
    for class in CLASSES {
        let bodies = bodies::load(class).expect("the recorded bodies are available");
        let samples = bodies.iter().map(|body| count_samples(&**body));
        let samples = samples.sum::<Result<u64, _>>();
        let samples = samples.expect("recorded bodies are valid");
        group.throughput(Throughput::Elements(samples));
        let models: Vec<Model> = bodies.into_iter().map(model).collect();
        let history = History::new(limits());
        // A host runs the same code for a long time, so most of it is known.
        group.bench_function(BenchmarkId::from_parameter(class), |bencher| {
            bencher.iter(|| {
                for model in &models {
                    history.add(black_box(model), &DeferredSymbols::default());
                }
            })
        });
    }
    group.finish();
    criterion.final_summary();
}

fn model(body: bytes::Bytes) -> Model {
    let received = Profiles::from_wire(body, Validation::Reject);
    let received = received.expect("recorded bodies are valid");
    received.profiles.model().clone()
}

/// The defaults of `live_view`.
fn limits() -> Limits {
    Limits {
        max_age: Duration::from_secs(3600),
        max_bytes: 30 << 20,
        resolution: Duration::from_secs(5),
        sample_labels: vec!["thread.name".to_owned()],
    }
}
