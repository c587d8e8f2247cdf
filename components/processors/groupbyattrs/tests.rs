//! Handmade samples, profiles and resources grouped by their attributes, and batches that keep their bytes.

use profcol_component::testkit::load;

use super::*;
use crate::shared::testkit::{ResourceSpec, processed, received, shown};

fn processor(options: &str) -> GroupByAttrs {
    GroupByAttrs::new(&load(options).unwrap())
}

async fn check(options: &str, resources: &[ResourceSpec<'_>], expected: &[&str]) {
    let output = processed(&processor(options), received(resources, 0)).await;
    assert_eq!(shown(&output[0]), expected, "{options}");
}

#[tokio::test]
async fn groups_samples_by_their_attributes() {
    check(
        "keys: [tenant, thread.name, tenant]",
        &[
            (
                "service.name=web",
                "",
                &[
                    "tenant=a cpu=1",
                    "tenant=b cpu=1",
                    "cpu=2",
                    "cpu=3 tenant=a",
                    "thread.name=gc",
                ],
            ),
            ("service.name=web tenant=a", "", &["cpu=4"]),
        ],
        &[
            "service.name=web tenant=a",
            "",
            "    cpu=1",
            "    cpu=3",
            "",
            "    cpu=4",
            "service.name=web tenant=b",
            "",
            "    cpu=1",
            "service.name=web",
            "",
            "    cpu=2",
            "service.name=web thread.name=gc",
            "",
            "",
        ],
    )
    .await;
}

#[tokio::test]
async fn sample_wins_over_profile_and_profile_over_resource() {
    check(
        "keys: [tenant]",
        &[("tenant=c", "tenant=b kind=cpu", &["tenant=a", "cpu=1"])],
        &[
            "tenant=a",
            "  kind=cpu",
            "",
            "tenant=b",
            "  kind=cpu",
            "    cpu=1",
        ],
    )
    .await;
    check(
        "keys: [tenant]",
        &[("", "tenant=b", &[])],
        &["tenant=b", ""],
    )
    .await;
}

#[tokio::test]
async fn without_keys_equal_resources_are_merged() {
    check(
        "{}",
        &[
            ("a=1", "", &["cpu=1"]),
            ("a=2", "", &[]),
            ("a=1", "", &["cpu=2"]),
        ],
        &["a=1", "", "    cpu=1", "", "    cpu=2", "a=2", ""],
    )
    .await;
}

#[tokio::test]
async fn grouped_batches_keep_their_bytes() {
    let input = received(&[("a=1", "", &["cpu=1"]), ("a=2", "", &["cpu=1"])], 0);
    let wire = input.to_wire();
    for options in ["{}", "keys: [b, a]"] {
        let output = processed(&processor(options), input.clone()).await;
        assert_eq!(output[0].to_wire(), wire, "{options}");
    }
}

#[tokio::test]
async fn parts_of_a_profile_get_new_ids() {
    let ids = async |samples: &[&str]| -> Vec<bool> {
        let input = received(&[("", "", samples)], 0);
        let output = processed(&processor("keys: [a]"), input).await;
        let profiles = output[0].model().profiles();
        profiles
            .map(|profile| profile.profile_id.is_some())
            .collect()
    };
    assert_eq!(ids(&["a=1", "a=1"]).await, [true]);
    assert_eq!(ids(&["a=1", "a=2"]).await, [false, false]);
}

#[test]
fn refuses_a_key_without_a_name() {
    let problems = load::<GroupByAttrsConfig>("keys: ['']").unwrap_err();
    assert!(problems.contains("must name an attribute"), "{problems}");
}
