//! Actions on handmade samples, profiles and resources of two services, and batches that keep their bytes.

use profcol_component::testkit::load;

use super::*;
use crate::shared::testkit::{ResourceSpec, processed, received, shown};

const WEB: ResourceSpec<'_> = (
    "service.name=web",
    "kind=cpu",
    &[
        "thread.name=main thread.id=7",
        "thread.name=gc",
        "thread.name=main thread.id=7",
        "",
    ],
);
const DB: ResourceSpec<'_> = ("service.name=db", "kind=wall", &["thread.name=main"]);

fn attributes(options: &str) -> AttributesProcessor {
    AttributesProcessor::new(&load(options).unwrap()).unwrap()
}

async fn check(options: &str, expected: &[&str]) {
    let output = processed(&attributes(options), received(&[WEB, DB], 0)).await;
    assert_eq!(shown(&output[0]), expected, "{options}");
}

#[tokio::test]
async fn changes_samples() {
    check(
        "actions: [{key: thread.id, action: delete}, {key: thread.name, value: GC, action: update}]
include: [{sample_attributes: [{key: thread.name, value: gc}]}, {sample_attributes: [{key: thread.id}]}]
exclude: [{profile_attributes: [{key: kind, value: wall}]}]",
        &[
            "service.name=web",
            "  kind=cpu",
            "    thread.name=GC",
            "    thread.name=GC",
            "    thread.name=GC",
            "",
            "service.name=db",
            "  kind=wall",
            "    thread.name=main",
        ],
    )
    .await;
    check(
        "actions: [{key: tenant, value: 9, action: insert}]
include: [{resource_attributes: [{key: service.name, regex: ^d}]}]",
        &[
            "service.name=web",
            "  kind=cpu",
            "    thread.name=main thread.id=7",
            "    thread.name=gc",
            "    thread.name=main thread.id=7",
            "",
            "service.name=db",
            "  kind=wall",
            "    thread.name=main tenant=9",
        ],
    )
    .await;
}

#[tokio::test]
async fn changes_profiles_and_resources() {
    check(
        "context: profile
actions: [{key: kind, pattern: '^(?P<first>.)', action: extract}]
exclude: [{resource_attributes: [{key: service.name, value: db}]}]",
        &[
            "service.name=web",
            "  kind=cpu first=c",
            "    thread.name=main thread.id=7",
            "    thread.name=gc",
            "    thread.name=main thread.id=7",
            "",
            "service.name=db",
            "  kind=wall",
            "    thread.name=main",
        ],
    )
    .await;
    check(
        "context: resource
actions: [{key: tier, value: data, action: upsert}]
include: [{resource_attributes: [{key: service.name, value: db}]}]",
        &[
            "service.name=web",
            "  kind=cpu",
            "    thread.name=main thread.id=7",
            "    thread.name=gc",
            "    thread.name=main thread.id=7",
            "",
            "service.name=db tier=data",
            "  kind=wall",
            "    thread.name=main",
        ],
    )
    .await;
}

#[tokio::test]
async fn unchanged_batches_keep_their_bytes() {
    for options in [
        "actions: [{key: other, action: delete}]",
        "actions: [{key: thread.id, action: delete}]
include: [{resource_attributes: [{key: service.name, value: other}]}]",
        "actions: [{key: thread.id, value: 7, action: update}]",
    ] {
        let input = received(&[WEB, DB], 0);
        let wire = input.to_wire();
        let output = processed(&attributes(options), input).await;
        assert_eq!(output[0].to_wire(), wire, "{options}");
    }
}

#[tokio::test]
async fn removed_attributes_are_in_no_table() {
    let options = "actions: [{key: thread.id, action: delete}]";
    let output = processed(&attributes(options), received(&[WEB, DB], 0)).await;
    let strings = &output[0].model().dictionary.strings;
    let mut texts =
        (0..strings.len()).map(|row| strings.get(profcol_profile::Idx::new(row as u32)));
    assert!(texts.all(|text| text != "thread.id"));
}

#[test]
fn validates_its_options() {
    let check = |options: &str, expected: &str| {
        let problems = load::<AttributesConfig>(options).unwrap_err();
        assert!(problems.contains(expected), "{options}: {problems}");
    };
    check("{}", "missing required field \"actions\"");
    check("actions: [{key: a}]", "unsupported action");
    let action = "actions: [{key: a, action: delete}]";
    check(&format!("{action}\ncontext: span"), "context");
    check(
        &format!("{action}\ninclude: [{{}}]"),
        "needs at least one of",
    );
    let sample = "include: [{sample_attributes: [{key: a}]}]";
    check(
        &format!("{action}\ncontext: profile\n{sample}"),
        "change the context",
    );
    let profile = "exclude: [{profile_attributes: [{key: a}]}]";
    check(
        &format!("{action}\ncontext: resource\n{profile}"),
        "change the context",
    );
}
