//! Thousands of handmade processes: how many pass, and that only process, time and seed decide.

use profcol_component::testkit::{Sink, context, load};
use profcol_component::{DropFeedback, DroppedProcess, Refusal};

use super::*;
use crate::shared::testkit::{ResourceSpec, processed, received, shown};

const MINUTE: u64 = 60_000_000_000;
const TIME: u64 = 28_333_333 * MINUTE + MINUTE / 2;

fn sampler(options: &str) -> ProbabilisticSampler {
    ProbabilisticSampler::new(&load(options).unwrap(), &context("sampler")).unwrap()
}

fn processes(host: &str, count: u64) -> Vec<String> {
    let process = |pid| format!("host.name={host} process.pid={pid}");
    (0..count).map(process).collect()
}

/// The resources that pass.
async fn passed(sampler: &ProbabilisticSampler, resources: &[String], time: u64) -> Vec<String> {
    let specs: Vec<ResourceSpec<'_>> = resources
        .iter()
        .map(|it| (&**it, "", &["a=1"][..]))
        .collect();
    let output = processed(sampler, received(&specs, time)).await;
    let lines = output.iter().flat_map(shown);
    lines.filter(|line| line.contains("host")).collect()
}

#[tokio::test]
async fn passes_the_configured_percentage() {
    let all = processes("a", 2000);
    for (percentage, expected) in [
        (0, 0..=0),
        (25, 400..=600),
        (80, 1500..=1700),
        (100, 2000..=2000),
    ] {
        let sampler = sampler(&format!(
            "{{sampling_percentage: {percentage}, hash_seed: 1}}"
        ));
        let passed = passed(&sampler, &all, TIME).await.len();
        assert!(expected.contains(&passed), "{percentage} %: {passed}");
        assert_eq!(sampler.dropped_samples.get(), 2000 - passed as u64);
    }
}

#[tokio::test]
async fn decisions_depend_only_on_process_time_and_seed() {
    let options = "{sampling_percentage: 50, hash_seed: 7}";
    let (one, other) = (sampler(options), sampler(options));
    let all = processes("a", 64);
    let first = passed(&one, &all, TIME).await;
    assert_eq!(
        passed(&other, &all, TIME + MINUTE / 3).await,
        first,
        "the same minute"
    );
    assert_ne!(
        passed(&one, &all, TIME + MINUTE).await,
        first,
        "the next minute"
    );
    let seeded = sampler("{sampling_percentage: 50, hash_seed: 8}");
    assert_ne!(passed(&seeded, &all, TIME).await, first, "another seed");
    // Attributes added later do not change the decision.
    let labelled: Vec<_> = all
        .iter()
        .map(|it| format!("k8s.pod.name=shop {it}"))
        .collect();
    let unlabelled: Vec<_> = passed(&one, &labelled, TIME)
        .await
        .iter()
        .map(|line| line.replace("k8s.pod.name=shop ", ""))
        .collect();
    assert_eq!(unlabelled, first);
    let forever = sampler("{sampling_percentage: 50, hash_seed: 7, interval: 0s}");
    assert_eq!(
        passed(&forever, &all, TIME).await,
        passed(&forever, &all, TIME + 100 * MINUTE).await
    );
}

#[tokio::test]
async fn a_host_passes_as_a_whole() {
    let sampler = sampler("{sampling_percentage: 50, hash_seed: 1, by: host}");
    let mut fates = [0, 0];
    for minute in 0..100 {
        match passed(&sampler, &processes("a", 8), TIME + minute * MINUTE)
            .await
            .len()
        {
            0 => fates[0] += 1,
            8 => fates[1] += 1,
            part => panic!("{part} of 8 passed"),
        }
    }
    assert!(fates.iter().all(|&times| times > 30), "{fates:?}");
}

#[tokio::test]
async fn a_refused_batch_gets_the_same_decision_again() {
    let sink = Sink::refusing([Refusal::retry("busy")]);
    let sampler = sampler("{sampling_percentage: 50, hash_seed: 1}");
    let all = processes("a", 50);
    let specs: Vec<ResourceSpec<'_>> = all.iter().map(|it| (&**it, "", &["a=1"][..])).collect();
    let batch = Batch::new(received(&specs, TIME));
    sampler.process(batch.clone(), &sink).await.unwrap_err();
    assert_eq!(sampler.dropped_samples.get(), 0);
    sampler.process(batch, &sink).await.unwrap();
    let passed: usize = sink.accepted().iter().sum();
    assert_eq!(sampler.dropped_samples.get() as usize, 50 - passed);
}

#[tokio::test]
async fn drop_feedback_has_the_end_of_the_slice() {
    let check = async |options: &str, expected| {
        let context = BuildContext {
            pipelines: ["profiles".parse().unwrap()].into(),
            ..context("sampler")
        };
        let sampler = ProbabilisticSampler::new(&load(options).unwrap(), &context).unwrap();
        let follower = DropFeedback::of(&context).subscribe();
        let specs: &[ResourceSpec<'_>] = &[
            ("process.pid=7", "", &["a=1"]),
            ("service.name=x", "", &["a=1"]),
        ];
        processed(&sampler, received(specs, TIME)).await;
        let process = SampledProcess { pid: 7, time: TIME };
        let until = expected;
        assert_eq!(
            follower.take(),
            [DroppedProcess { process, until }],
            "{options}"
        );
    };
    check(
        "{sampling_percentage: 0}",
        DropExpiry::Time(TIME + MINUTE / 2),
    )
    .await;
    check(
        "{sampling_percentage: 0, interval: 0s}",
        DropExpiry::ProcessEnd,
    )
    .await;
}

#[tokio::test]
async fn batches_without_drops_keep_their_bytes() {
    let input = received(&[("host.name=a process.pid=1", "", &["a=1"])], TIME);
    let wire = input.to_wire();
    let output = processed(&sampler("{}"), input).await;
    assert_eq!(output[0].to_wire(), wire);
}

#[test]
fn validates_the_percentage() {
    for percentage in ["-1", "100.5"] {
        let options = format!("sampling_percentage: {percentage}");
        let problems = load::<ProbabilisticSamplerConfig>(&options).unwrap_err();
        assert!(problems.contains("between 0 and 100"), "{problems}");
    }
}
