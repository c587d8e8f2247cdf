//! Rules on two handmade processes: which samples remain, how many are counted, and which drops the receiver learns.

use std::sync::Arc;

use profcol_component::testkit::{Sink, batch_with_outcomes, context, load};
use profcol_component::{DropFeedback, DropSubscription, Outcome, Refusal, SampledProcess};
use profcol_profile::{
    AttributeRef, Interner, KeyValue, Model, Profile, Resource, ResourceProfiles, SampleRef,
    Samples, ScopeProfiles, Validation, Value,
};

use super::*;
use crate::shared::testkit::Keep;

const SAMPLED_AT: u64 = 1_700_000_000_000_000_000;

fn filter(options: &str) -> FilterProcessor {
    FilterProcessor::new(&load(options).unwrap(), &context("filter")).unwrap()
}

/// Two processes: `web` with threads `main` and `gc`, `db` with `main` and without a pid. The profile
/// of `db` has the attribute `kind: wall`.
fn two_processes() -> Profiles {
    let mut rows = Interner::new();
    let mut attribute = |key: &str, value: &str| {
        let key = rows.string(key);
        let unit = rows.string("");
        let value = &Value::from(value);
        rows.attribute(AttributeRef { key, value, unit })
    };
    let main = attribute("thread.name", "main");
    let gc = attribute("thread.name", "gc");
    let wall = attribute("kind", "wall");
    let resource = |attributes: &[(&str, Value)], threads: &[_], of_profile: &[_]| {
        let mut samples = Samples::default();
        for &thread in threads {
            samples.push(SampleRef {
                attributes: &[thread],
                values: &[1],
                ..SampleRef::default()
            });
        }
        let attributes = attributes
            .iter()
            .map(|(key, value)| KeyValue::new(key, value.clone()));
        let profile = Profile {
            samples,
            time_unix_nano: SAMPLED_AT,
            attributes: of_profile.to_vec(),
            profile_id: Some([1; 16]),
            ..Profile::default()
        };
        ResourceProfiles {
            resource: Some(Arc::new(Resource {
                attributes: attributes.collect(),
                ..Resource::default()
            })),
            scopes: vec![ScopeProfiles {
                profiles: vec![Arc::new(profile)],
                ..ScopeProfiles::default()
            }],
            ..ResourceProfiles::default()
        }
    };
    let name = "process.executable.name";
    let web = &[(name, "web".into()), ("process.pid", 7.into())];
    let resources = vec![
        resource(web, &[main, gc], &[]),
        resource(&[(name, "db".into())], &[main], &[wall]),
    ];
    Profiles::from_model(Model {
        dictionary: Arc::new(rows.finish()),
        resources,
    })
}

/// A line for each sample: process and thread.
fn describe(profiles: &Profiles) -> Vec<String> {
    let model = profiles.model();
    let mut lines = Vec::new();
    for row in &model.resources {
        let name = row.resource.as_ref().unwrap().attributes[0].value.clone();
        for profile in row.scopes.iter().flat_map(|scope| &scope.profiles) {
            for sample in profile.samples.iter() {
                let thread = model.dictionary.attributes.get(sample.attributes[0]);
                let thread = thread.unwrap().value.as_str().unwrap();
                lines.push(format!("{} {thread}", name.as_str().unwrap()));
            }
        }
    }
    lines
}

async fn filtered(options: &str) -> Vec<Profiles> {
    let keep = Keep::default();
    let (batch, outcomes) = batch_with_outcomes(0);
    // As received over the network: bytes, not decoded.
    let wire = two_processes().to_wire();
    let batch = batch.with_profiles(
        Profiles::from_wire(wire, Validation::Reject)
            .unwrap()
            .profiles,
    );
    let filter = filter(options);
    filter.process(batch, &keep).await.unwrap();
    assert_eq!(outcomes.seen(), [Outcome::Delivered], "{options}");
    let remaining = keep.into_inner();
    let samples: usize = remaining.iter().map(Profiles::sample_count).sum();
    assert_eq!(
        filter.dropped_samples.get(),
        3 - samples as u64,
        "{options}"
    );
    remaining
}

async fn check(options: &str, expected: &[&str]) {
    let remaining = filtered(options).await;
    let remaining: Vec<String> = remaining.iter().flat_map(describe).collect();
    assert_eq!(remaining, expected, "{options}");
}

#[tokio::test]
async fn drops_what_a_rule_excludes_and_what_none_includes() {
    const ALL: &[&str] = &["web main", "web gc", "db main"];
    let name = "resource_attributes: [{key: process.executable.name, value: web}]";
    let pattern = "resource_attributes: [{key: process.executable.name, regex: ^w}]";
    let pid = "resource_attributes: [{key: process.pid}]";
    let gc = "sample_attributes: [{key: thread.name, value: gc}]";
    let wall = "profile_attributes: [{key: kind, value: wall}]";
    let rows: &[(String, &[&str])] = &[
        (format!("exclude: [{{{name}}}]"), &["db main"]),
        (format!("include: [{{{name}}}]"), &["web main", "web gc"]),
        (format!("include: [{{{pattern}}}]"), &["web main", "web gc"]),
        (format!("exclude: [{{{pid}}}]"), &["db main"]),
        (format!("exclude: [{{{gc}}}]"), &["web main", "db main"]),
        (format!("include: [{{{gc}}}]"), &["web gc"]),
        (format!("exclude: [{{{wall}}}]"), &["web main", "web gc"]),
        (format!("include: [{{{wall}}}]"), &["db main"]),
        // All conditions of a rule, one of the rules.
        (format!("exclude: [{{{wall}, {gc}}}]"), ALL),
        (
            format!("exclude: [{{{name}, {gc}}}]"),
            &["web main", "db main"],
        ),
        (format!("exclude: [{{{wall}}}, {{{gc}}}]"), &["web main"]),
        (
            format!("include: [{{{name}}}]\nexclude: [{{{gc}}}]"),
            &["web main"],
        ),
        (
            format!("include: [{{{wall}}}, {{{gc}}}]"),
            &["web gc", "db main"],
        ),
        (format!("include: [{{{pid}}}, {{{wall}}}]"), ALL),
        // Everything is dropped, or nothing.
        (format!("include: [{{{name}}}]\nexclude: [{{{name}}}]"), &[]),
        (
            "exclude: [{resource_attributes: [{key: process.pid, value: '7'}]}]".into(),
            ALL,
        ),
        (
            "exclude: [{resource_attributes: [{key: process.pid, regex: '^7$'}]}]".into(),
            &["db main"],
        ),
        (
            "exclude: [{sample_attributes: [{key: name, value: gc}]}]".into(),
            ALL,
        ),
    ];
    for (options, expected) in rows {
        check(options, expected).await;
    }
}

#[tokio::test]
async fn batches_without_drops_keep_their_bytes() {
    for options in [
        "exclude: [{resource_attributes: [{key: other}]}]",
        "exclude: [{sample_attributes: [{key: other}]}]",
    ] {
        let remaining = filtered(options).await.remove(0);
        assert_eq!(remaining.to_wire(), two_processes().to_wire(), "{options}");
    }
}

#[tokio::test]
async fn tables_have_nothing_of_dropped_samples() {
    let gc = "exclude: [{sample_attributes: [{key: thread.name, value: gc}]}]";
    let remaining = filtered(gc).await.remove(0);
    let model = remaining.model();
    let attributes = model.dictionary.attributes.rows();
    let mut values = attributes.iter().map(|row| &row.value);
    assert!(values.all(|value| value.as_str() != Some("gc")));
    // A profile without some of its samples gets a new ID.
    let ids: Vec<_> = model.profiles().map(|it| it.profile_id).collect();
    assert_eq!(ids, [None, Some([1; 16])]);
}

#[tokio::test]
async fn a_refused_batch_counts_dropped_samples_once_accepted() {
    let sink = Sink::refusing([Refusal::retry("busy")]);
    let filter = filter("exclude: [{resource_attributes: [{key: process.pid}]}]");
    let offer = || filter.process(Batch::new(two_processes()), &sink);
    offer().await.unwrap_err();
    assert_eq!(filter.dropped_samples.get(), 0);
    offer().await.unwrap();
    assert_eq!(filter.dropped_samples.get(), 2);
    assert_eq!(filter.dropped_profiles.get(), 1);
    assert_eq!(sink.accepted(), [1]);
}

/// A filter, and the drop feedback for its receiver.
fn followed(options: &str) -> (FilterProcessor, DropSubscription) {
    let context = BuildContext {
        pipelines: ["profiles".parse().unwrap()].into(),
        ..context("filter")
    };
    let filter = FilterProcessor::new(&load(options).unwrap(), &context).unwrap();
    (filter, DropFeedback::of(&context).subscribe())
}

#[tokio::test]
async fn reports_processes_that_never_match() {
    let check = async |options: &str, expected: &[i64]| {
        let (filter, follower) = followed(options);
        let sink = Sink::default();
        let batch = Batch::new(two_processes());
        filter.process(batch, &sink).await.unwrap();
        let reported = follower.take();
        let reported: Vec<SampledProcess> = reported.iter().map(|it| it.process).collect();
        let expected: Vec<SampledProcess> = expected
            .iter()
            .map(|&pid| SampledProcess {
                pid,
                time: SAMPLED_AT,
            })
            .collect();
        assert_eq!(reported, expected, "{options}");
    };
    let web = "resource_attributes: [{key: process.executable.name, value: web}]";
    let db = "resource_attributes: [{key: process.executable.name, value: db}]";
    let pod = "resource_attributes: [{key: k8s.pod.name, value: shop}]";
    let main = "sample_attributes: [{key: thread.name, value: main}]";
    let any_thread = "sample_attributes: [{key: thread.name}]";
    check(&format!("exclude: [{{{web}}}]"), &[7]).await;
    check(&format!("include: [{{{db}}}]"), &[7]).await;
    check(&format!("include: [{{{db}, {main}}}]"), &[7]).await;
    // The pod may be added later.
    check(&format!("include: [{{{pod}}}]"), &[]).await;
    check(&format!("include: [{{{db}}}, {{{pod}}}]"), &[]).await;
    check(&format!("include: [{{{db}}}]\nexclude: [{{{web}}}]"), &[7]).await;
    // The process may start another thread.
    check(&format!("exclude: [{{{any_thread}}}]"), &[]).await;
    check(&format!("exclude: [{{{web}, {any_thread}}}]"), &[]).await;
    check(&format!("exclude: [{{{db}}}]"), &[]).await;
}

#[test]
fn validates_its_options() {
    let check = |options: &str, expected: &str| {
        let problems = load::<FilterConfig>(options).unwrap_err();
        assert!(problems.contains(expected), "{options}: {problems}");
    };
    check("{}", "needs at least one rule");
    check("exclude: [{}]", "needs at least one of resource_attributes");
    check(
        "exclude: [{resource_attributes: []}]",
        "needs at least one of",
    );
    check(
        "exclude: [{sample_attributes: [{value: 1}]}]",
        "name an attribute",
    );
    check(
        "exclude: [{sample_attributes: [{key: a, regex: '('}]}]",
        "invalid regular",
    );
    check(
        "include: [{sample_attributes: [{key: a, regex: a, value: a}]}]",
        "only one of value and regex",
    );
    check("include: [{attributes: [{key: a}]}]", "attributes");
}
