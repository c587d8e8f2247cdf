//! Rules on handmade resources and samples: what changes, what is dropped and reported, and Parca Agent's config file.

use profcol_component::testkit::{Sink, batch, batch_with_outcomes, context, load};
use profcol_component::{DropFeedback, Outcome, Refusal};
use profcol_labels::Leftovers;
use profcol_profile::{KeyValue, Validation, Value};

use super::*;
use crate::shared::testkit::{Keep, ResourceSpec, processed, received as profiles_of, shown};

async fn started(options: &str, context: &BuildContext) -> RelabelProcessor {
    let processor = RelabelProcessor::new(&load(options).unwrap(), context);
    processor.start().await.unwrap();
    processor
}

/// A resource with two samples for each list of attributes, encoded as if received over the network.
fn received(resources: &[&[(&str, Value)]]) -> Profiles {
    let parts = resources.iter().map(|attributes| {
        let mut profiles = batch(2).profiles;
        profiles.update_resources(|resource| {
            let attributes = attributes.iter();
            resource.attributes = attributes
                .map(|(key, value)| KeyValue::new(key, value.clone()))
                .collect();
            true
        });
        profiles
    });
    let wire = Profiles::merge(parts).to_wire();
    Profiles::from_wire(wire, Validation::Reject)
        .unwrap()
        .profiles
}

fn process(pid: i64, name: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("process.pid", pid.into()),
        ("process.executable.name", name.into()),
    ]
}

/// The attributes of each remaining resource, as text.
fn described(profiles: &Profiles) -> Vec<String> {
    let resources = profiles.model().resources.iter();
    let resources = resources.map(|row| row.resource.as_ref().unwrap().attributes.iter());
    let shown = |it: &KeyValue| {
        let text = profcol_labels::text(&it.value).unwrap_or_default();
        format!("{}={text}", it.key)
    };
    let mut all: Vec<String> = resources
        .map(|attributes| attributes.map(shown).collect::<Vec<_>>().join(" "))
        .collect();
    all.sort();
    all
}

async fn relabelled(options: &str, profiles: Profiles) -> Vec<Profiles> {
    let keep = Keep::default();
    let (batch, outcomes) = batch_with_outcomes(0);
    let processor = started(options, &context("relabel")).await;
    let batch = batch.with_profiles(profiles);
    processor.process(batch, &keep).await.unwrap();
    assert_eq!(outcomes.seen(), [Outcome::Delivered], "{options}");
    keep.into_inner()
}

#[tokio::test]
async fn changes_resources_and_drops_some() {
    let check = async |options: &str, expected: &[&str]| {
        let profiles = received(&[&process(1, "web"), &process(2, "db")]);
        let left = relabelled(options, profiles).await;
        let found: Vec<String> = left.iter().flat_map(described).collect();
        assert_eq!(found, expected, "{options}");
        let samples: usize = left.iter().map(Profiles::sample_count).sum();
        assert_eq!(samples, 2 * expected.len(), "{options}");
    };
    let (web, db) = (
        "process.pid=1 process.executable.name=web",
        "process.pid=2 process.executable.name=db",
    );
    check(
        "configs: [{source_labels: [a], target_label: b}]",
        &[web, db],
    )
    .await;
    check(
        "configs: [{source_labels: [comm], regex: web, action: DROP}]",
        &[db],
    )
    .await;
    check(
        "configs: [{source_labels: [comm], regex: web, action: keep}, {target_label: x, replacement: y}]",
        &["process.pid=1 process.executable.name=web x=y"],
    )
    .await;
    check(
        "configs: [{source_labels: [x], regex: y, action: keep}]",
        &[],
    )
    .await;
}

#[tokio::test]
async fn unchanged_batches_keep_their_bytes() {
    let profiles = received(&[&process(1, "web")]);
    let wire = profiles.to_wire();
    let options = "configs: [{source_labels: [comm], regex: db, action: drop}]";
    let left = relabelled(options, profiles).await.remove(0);
    assert_eq!(left.to_wire().as_ptr(), wire.as_ptr());
}

#[tokio::test]
async fn reads_parca_agents_config_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("parca.yaml");
    let check = async |file: &str, expected: &[&str]| {
        std::fs::write(&path, file).unwrap();
        let options = format!("parca_config_file: {}", path.display());
        let left = relabelled(&options, received(&[&process(1, "web")])).await;
        assert_eq!(described(&left[0]), expected, "{file}");
    };
    let web = "process.pid=1 process.executable.name=web";
    check("", &[web]).await;
    check("# nothing\n", &[web]).await;
    check("log-level: debug\nrelabel_configs:\n", &[web]).await;
    let file = "node: n\nrelabel_configs:\n- source_labels: [__meta_process_pid]\n  regex: (.)\n  replacement: p${1}\n  target_label: pid\n- target_label: __x\n  replacement: y\n";
    check(
        file,
        &["process.pid=1 process.executable.name=web pid=p1 __x=y"],
    )
    .await;

    let refused = async |file: &str, expected: &str| {
        std::fs::write(&path, file).unwrap();
        let options = format!("parca_config_file: {}", path.display());
        let processor = RelabelProcessor::new(&load(&options).unwrap(), &context("relabel"));
        let error = processor.start().await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    refused(
        "relabel_configs: [{action: x}]",
        "unknown relabel action \"x\"",
    )
    .await;
    refused("relabel_configs: [", "failed to read parca_config_file").await;
    refused(
        "relabel_configs: [{source_label: [a], target_label: b}]",
        "did you mean \"source_labels\"?",
    )
    .await;
    std::fs::remove_file(&path).unwrap();
    let options = format!("parca_config_file: {}", path.display());
    let processor = RelabelProcessor::new(&load(&options).unwrap(), &context("relabel"));
    assert!(processor.start().await.is_err());
}

fn in_pipeline() -> BuildContext {
    BuildContext {
        pipelines: ["profiles".parse().unwrap()].into(),
        ..context("relabel")
    }
}

#[tokio::test]
async fn reports_processes_that_are_always_dropped() {
    let context = in_pipeline();
    let follower = DropFeedback::of(&context);
    let check = async |options: &str, expected: &[i64]| {
        let processor = started(options, &context).await;
        let follower = follower.subscribe();
        let batch = batch(0).with_profiles(received(&[&process(1, "web"), &process(2, "db")]));
        processor.process(batch, &Keep::default()).await.unwrap();
        let reported: Vec<i64> = follower
            .take()
            .iter()
            .map(|dropped| dropped.process.pid)
            .collect();
        assert_eq!(reported, expected, "{options}");
    };
    check(
        "configs: [{source_labels: [comm], regex: web, action: drop}]",
        &[1],
    )
    .await;
    check(
        "configs: [{source_labels: [pod], regex: .+, action: keep}]",
        &[],
    )
    .await;
}

#[tokio::test]
async fn says_which_rule_drops_a_process() {
    let context = in_pipeline();
    let options = "configs: [{target_label: env, replacement: a}, {source_labels: [comm], regex: web, action: drop}]";
    let processor = started(options, &context).await;
    for _ in 0..2 {
        let batch = batch(0).with_profiles(received(&[&process(1, "web"), &process(2, "db")]));
        processor.process(batch, &Keep::default()).await.unwrap();
    }
    let reasons = DropFeedback::of(&context).reasons();
    let [reason] = &reasons[..] else {
        panic!("{reasons:?}");
    };
    assert_eq!((reason.pid, &*reason.processor), (1, "relabel"));
    assert_eq!(
        reason.reason,
        "rule 2: drop, source_labels [comm], regex \"web\""
    );
    assert_eq!(reason.resource.attributes.len(), 2);
}

#[tokio::test]
async fn rules_without_drops_report_nothing() {
    let context = in_pipeline();
    let _processor = started("configs: [{source_labels: [a], target_label: b}]", &context).await;
    assert!(!DropFeedback::of(&context).subscribe().is_active());
}

#[tokio::test]
async fn rules_are_applied_once_to_each_set_of_labels() {
    let options = "configs: [{source_labels: [process.pid], target_label: b}]";
    let processor = started(options, &context("relabel")).await;
    for _ in 0..3 {
        let batch = batch(0).with_profiles(received(&[&process(1, "web"), &process(2, "db")]));
        processor.process(batch, &Keep::default()).await.unwrap();
    }
    assert_eq!(processor.applied.get(), 2);
}

/// The cache is bounded by weight: see `shared::generations`.
#[test]
fn cache_of_distinct_label_sets_is_bounded() {
    let rule = Rule::new(&profcol_labels::RuleSpec {
        target_label: "b".into(),
        replacement: "x".repeat(1000),
        ..Default::default()
    });
    let rules = [rule.unwrap()];
    let memory = DecisionCache::new(Leftovers::Prometheus);
    let mut misses = 0;
    let mut lookup = |number: i64| {
        let process = SharedResource::new(Resource {
            attributes: vec![KeyValue::new("process.pid", number)],
            ..Resource::default()
        });
        memory.verdicts(&rules, &[process], || misses += 1);
    };
    for number in 0..100_000 {
        lookup(number);
        if number % 100 == 0 {
            lookup(0);
        }
    }
    lookup(1);
    assert_eq!(
        misses, 100_001,
        "the first is in use and stays, the second is evicted"
    );
}

#[tokio::test]
async fn returns_the_answer_of_the_next_consumer() {
    let sink = Sink::refusing([Refusal::retry("full"), Refusal::retry("full")]);
    let options = "configs: [{source_labels: [comm], regex: web, action: drop}]";
    let processor = started(options, &context("relabel")).await;
    for names in [["web", "db"], ["db", "db"]] {
        let (refused, outcomes) = batch_with_outcomes(0);
        let [a, b] = names;
        let refused = refused.with_profiles(received(&[&process(1, a), &process(2, b)]));
        let answer = processor.process(refused, &sink).await;
        assert_eq!(answer, Err(Refusal::retry("full")));
        assert_eq!(outcomes.seen(), [Outcome::Undelivered]);
    }
    assert_eq!(processor.dropped_samples.get(), 0);
}

#[test]
fn validates_the_options() {
    let check = |options: &str, expected: &str| {
        let error = load::<RelabelConfig>(options).unwrap_err();
        assert!(error.starts_with(expected), "{options}: {error}");
    };
    let check_rule = |rule: &str, expected: &str| check(&format!("configs: [{rule}]"), expected);
    check("{}", "set configs or parca_config_file");
    check_rule(
        "{action: swap}",
        "configs::0::action: unknown relabel action \"swap\"",
    );
    check_rule(
        "{source_labels: [a]}",
        "configs::0::target_label: relabel configuration for replace action requires 'target_label' value",
    );
    check_rule(
        "{action: hashmod, target_label: a}",
        "configs::0::modulus: relabel configuration for hashmod requires non-zero modulus",
    );
    check_rule(
        "{action: labeldrop, regex: a, source_labels: [b]}",
        "configs::0: labeldrop action requires only 'regex', and no other fields",
    );
    check_rule(
        "{regex: '(', target_label: a}",
        "configs::0::regex: error parsing regexp: ",
    );
}

/// The remaining samples, and how many were dropped.
async fn by_sample(options: &str, specs: &[ResourceSpec<'_>]) -> (Vec<String>, u64) {
    let processor = started(options, &context("relabel")).await;
    let left = processed(&processor, profiles_of(specs, 7)).await;
    (
        left.iter().flat_map(shown).collect(),
        processor.dropped_samples.get(),
    )
}

const THREADS: &[ResourceSpec<'_>] = &[(
    "process.executable.name=web",
    "",
    &[
        "thread.name=main cpu.logical_number=1",
        "thread.name=gc",
        "cpu.logical_number=2",
    ],
)];

#[tokio::test]
async fn rules_may_look_at_samples() {
    let drop = "{sample_labels: [thread_name], configs: [{source_labels: [thread_name], regex: gc, action: drop}]}";
    let (left, dropped) = by_sample(drop, THREADS).await;
    let expected = [
        "process.executable.name=web",
        "",
        "    thread.name=main cpu.logical_number=1",
        "    cpu.logical_number=2",
    ];
    assert_eq!((&left[..], dropped), (&expected.map(str::to_owned)[..], 1));

    // Attributes that are not in `sample_labels` are invisible.
    let other_label = drop.replace("[thread_name], configs", "[cpu], configs");
    assert_eq!(by_sample(&other_label, THREADS).await.1, 0);

    let cpu = "{sample_labels: [cpu], configs: [{source_labels: [cpu], regex: '(.+)', target_label: core}, {regex: cpu, action: labeldrop}]}";
    let (left, _) = by_sample(cpu, THREADS).await;
    let expected = [
        "process.executable.name=web core=1",
        "",
        "    thread.name=main",
        "process.executable.name=web",
        "",
        "    thread.name=gc",
        "process.executable.name=web core=2",
        "",
        "",
    ];
    assert_eq!(left, expected);

    let thread = "{sample_labels: [thread.name], configs: [{source_labels: [comm, thread_name], separator: /, target_label: thread_name}]}";
    let (left, _) = by_sample(thread, THREADS).await;
    let expected = [
        "process.executable.name=web",
        "",
        "    cpu.logical_number=1 thread.name=web/main",
        "    thread.name=web/gc",
        "    cpu.logical_number=2 thread.name=web/",
    ];
    assert_eq!(left, expected);
}

#[tokio::test]
async fn batches_unchanged_by_sample_rules_keep_their_bytes() {
    let options =
        "{sample_labels: [cpu], configs: [{source_labels: [cpu], regex: '9', action: drop}]}";
    let processor = started(options, &context("relabel")).await;
    let input = profiles_of(THREADS, 7);
    let wire = input.to_wire();
    let left = processed(&processor, input).await;
    assert_eq!(left[0].to_wire(), wire);
}

#[tokio::test]
async fn reports_only_processes_dropped_regardless_of_samples() {
    let context = in_pipeline();
    let specs: &[ResourceSpec<'_>] = &[("process.pid=1 kind=a", "", &["cpu.logical_number=1"])];
    for (rule, expected) in [
        ("{source_labels: [kind], regex: a, action: drop}", 1),
        ("{source_labels: [cpu], regex: '1', action: drop}", 0),
        ("{source_labels: [cpu], regex: '2', action: keep}", 0),
    ] {
        let options = format!("{{sample_labels: [cpu], configs: [{rule}]}}");
        let processor = started(&options, &context).await;
        let follower = DropFeedback::of(&context).subscribe();
        assert!(
            processed(&processor, profiles_of(specs, 7))
                .await
                .is_empty(),
            "{rule}"
        );
        assert_eq!(follower.take().len(), expected, "{rule}");
    }
}
