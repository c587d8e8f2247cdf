use profcol_component::testkit::load;

use super::*;
use crate::shared::testkit::{ResourceSpec, processed, received, shown};

fn processor(options: &str) -> GroupByAttrs {
    GroupByAttrs::new(&load(options).unwrap())
}

async fn check(options: &str, resources: &[ResourceSpec<'_>], expected: &[&str]) {
    let left = processed(&processor(options), received(resources, 0)).await;
    assert_eq!(shown(&left[0]), expected, "{options}");
}

#[tokio::test]
async fn samples_go_to_the_resource_of_their_attributes() {
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
async fn a_sample_counts_more_than_its_profile_and_both_more_than_the_resource() {
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
async fn without_keys_equal_resources_become_one() {
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
async fn what_is_grouped_already_leaves_as_it_came() {
    let came = received(&[("a=1", "", &["cpu=1"]), ("a=2", "", &["cpu=1"])], 0);
    let wire = came.to_wire();
    for options in ["{}", "keys: [b, a]"] {
        let left = processed(&processor(options), came.clone()).await;
        assert_eq!(left[0].to_wire(), wire, "{options}");
    }
}

#[tokio::test]
async fn a_part_of_a_profile_is_another_profile() {
    let ids = async |samples: &[&str]| -> Vec<bool> {
        let came = received(&[("", "", samples)], 0);
        let left = processed(&processor("keys: [a]"), came).await;
        let profiles = left[0].model().profiles();
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
