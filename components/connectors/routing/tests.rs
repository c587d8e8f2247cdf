//! Conditions on handmade attributes, wrong ones with the place of the error, and routes to scripted pipelines.

use std::sync::Arc;

use profcol_component::testkit::{Sink, SinkPipelines, context, load, profiles};
use profcol_component::{Finalizer, Source};
use profcol_profile::{KeyValue, Resource, Value};

use super::error::ConditionError;
use super::*;

fn attributes(attributes: &[(&str, Value)]) -> Attributes {
    let attribute = |(key, value): &(&str, Value)| KeyValue::new(key, value.clone());
    attributes.iter().map(attribute).collect()
}

fn checkout() -> Attributes {
    attributes(&[
        ("service.name", "checkout".into()),
        ("process.pid", 7.into()),
        ("load", Value::Double(0.5)),
        ("is_test", false.into()),
        ("quote", "a \"b\" \\c".into()),
        ("args", Value::Array([Value::from("x")].into())),
    ])
}

#[test]
fn conditions_are_evaluated() {
    for (text, expected) in [
        (r#"attributes["service.name"] == "checkout""#, true),
        (r#"resource.attributes["service.name"] == "checkout""#, true),
        (r#"attributes["service.name"] != "checkout""#, false),
        (r#"attributes["service.name"]=="Checkout""#, false),
        (r#"attributes["none"] == nil"#, true),
        (r#"attributes["none"] != "x""#, true),
        (r#"attributes["service.name"] != nil"#, true),
        (r#"attributes["process.pid"] == 7"#, true),
        (r#"attributes["process.pid"] == 7.0"#, true),
        (r#"attributes["process.pid"] == "7""#, false),
        (r#"attributes["process.pid"] == -7"#, false),
        (r#"attributes["load"] == 5e-1"#, true),
        (r#"attributes["is_test"] == false"#, true),
        (r#"attributes["quote"] == "a \"b\" \\c""#, true),
        (r#"IsMatch(attributes["service.name"], "^check")"#, true),
        (
            r#"IsMatch(resource.attributes["process.pid"], "^7$")"#,
            true,
        ),
        (r#"IsMatch(attributes["none"], "")"#, false),
        (r#"not IsMatch(attributes["service.name"], "out$")"#, false),
        ("true", true),
        ("not not false", false),
        // `and` binds closer than `or`, `not` closer than both.
        ("true or true and false", true),
        ("(true or true) and false", false),
        ("not true or true", true),
        ("not (true or true)", false),
    ] {
        let condition = Condition::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(condition.holds(&checkout()), Ok(expected), "{text}");
    }
    let statement = |text| Condition::parse_statement(text).unwrap().holds(&checkout());
    assert_eq!(statement("route()"), Ok(true));
    assert_eq!(
        statement(r#"route() where attributes["load"] == nil"#),
        Ok(false)
    );
}

#[test]
fn other_conditions_are_refused_with_the_place() {
    let error = |text: &str| Condition::parse(text).unwrap_err().to_string();
    for (text, expected) in [
        (
            "",
            "character 1: expected an attribute or `IsMatch`, found the end",
        ),
        (
            "severity_number < 5",
            "character 1: expected an attribute or `IsMatch`, found `severity_number`",
        ),
        (
            r#"attributes["a"] < 5"#,
            "character 17: expected `==` or `!=`, found '<'",
        ),
        (
            r#"attributes["a"] = "b""#,
            "character 17: expected `==` or `!=`, found '='",
        ),
        (
            r#"attributes["a"] == attributes["b"]"#,
            "character 20: expected a string, number, boolean or `nil`, found `attributes`",
        ),
        (
            r#"attributes["a"]["b"] == 1"#,
            "character 16: expected `==` or `!=`, found `[`",
        ),
        (
            r#"attributes[a] == 1"#,
            "character 12: expected a key in double quotes, found `a`",
        ),
        (
            r#"é and true"#,
            "character 1: expected an attribute or `IsMatch`, found 'é'",
        ),
        (
            r#"(true"#,
            "character 6: expected `)`, `and` or `or`, found the end",
        ),
        (
            r#"true true"#,
            "character 6: expected `and`, `or` or the end, found `true`",
        ),
        (
            r#"attributes["a"] == 1x"#,
            "character 20: \"1x\" is not a number",
        ),
        (
            r#"attributes["a"] == "b"#,
            "character 20: a string without end",
        ),
        (
            r#"attributes["a"] == "\d""#,
            "character 21: unknown escape: a backslash in a string is written `\\\\`",
        ),
    ] {
        assert_eq!(error(text), expected, "{text}");
    }
    assert!(
        error(r#"IsMatch(attributes["a"], "(")"#)
            .starts_with("character 26: invalid regular expression")
    );
    let statement = Condition::parse_statement(r#"delete_key(attributes, "a")"#);
    assert_eq!(
        statement.unwrap_err().to_string(),
        "character 1: expected `route()`, found `delete_key`"
    );
}

#[test]
fn conditions_are_bounded() {
    let nested = |depth: usize| format!("{}true{}", "(".repeat(depth), ")".repeat(depth));
    assert!(Condition::parse(&nested(31)).is_ok());
    let too_deep = Condition::parse(&nested(32)).unwrap_err();
    assert_eq!(too_deep, ConditionError::TooDeep { position: 33 });
    let negated = format!("{}true", "not ".repeat(32));
    assert!(matches!(
        Condition::parse(&negated),
        Err(ConditionError::TooDeep { .. })
    ));
    let long = format!("true {}", "or true ".repeat(600));
    assert_eq!(
        Condition::parse(&long).unwrap_err(),
        ConditionError::TooLong
    );
}

const TABLE: &str = r#"
table:
  - condition: attributes["service.name"] == "checkout"
    pipelines: [profiles/a, profiles/b]
  - {context: resource, statement: 'route() where IsMatch(attributes["service.name"], "^s")', pipelines: [profiles/b]}
"#;

struct Rig {
    connector: Box<dyn Connector>,
    next: SinkPipelines,
}

impl Rig {
    fn new(options: &str, a: Sink) -> Self {
        let next = SinkPipelines::new([
            ("profiles/a", a),
            ("profiles/b", Sink::default()),
            ("profiles/default", Sink::default()),
        ]);
        let connector = Routing::build(&load(options).unwrap(), &context("routing")).unwrap();
        Self { connector, next }
    }

    /// A resource for each service, with that many samples.
    async fn push(&self, services: &[(&str, usize)]) -> Answer {
        let resource = |(service, samples): &(&str, usize)| {
            let mut profiles = profiles(*samples);
            profiles.update_resources(|resource| {
                resource.attributes = attributes(&[("service.name", (*service).into())]);
                true
            });
            profiles
        };
        let merged = Profiles::merge(services.iter().map(resource));
        self.connector.process(Batch::new(merged), &self.next).await
    }

    fn accepted(&self) -> [Vec<usize>; 3] {
        ["a", "b", "default"].map(|it| self.next.accepted(&format!("profiles/{it}")))
    }
}

#[tokio::test]
async fn each_resource_goes_to_the_pipelines_of_its_route() {
    let rig = Rig::new(
        &format!("default_pipelines: [profiles/default]{TABLE}"),
        Sink::default(),
    );
    rig.push(&[
        ("checkout", 1),
        ("search", 2),
        ("other", 4),
        ("checkout", 8),
    ])
    .await
    .unwrap();
    assert_eq!(rig.accepted(), [vec![9], vec![11], vec![4]]);
    rig.push(&[("search", 5), ("sale", 6)]).await.unwrap();
    rig.push(&[("other", 7)]).await.unwrap();
    assert_eq!(rig.accepted(), [vec![9], vec![11, 11], vec![4, 7]]);
    assert_eq!(rig.connector.removed_samples(), 0);
}

#[tokio::test]
async fn what_has_no_route_is_dropped_once_the_rest_is_accepted() {
    let rig = Rig::new(TABLE, Sink::refusing([Refusal::retry("full")]));
    let both = [("checkout", 1), ("other", 2)];
    assert!(rig.push(&both).await.is_err());
    assert_eq!(rig.connector.removed_samples(), 0);
    rig.push(&both).await.unwrap();
    assert_eq!(rig.connector.removed_samples(), 2);
    rig.push(&[("other", 3)]).await.unwrap();
    assert_eq!(rig.connector.removed_samples(), 5);
    assert_eq!(rig.accepted(), [vec![1], vec![1, 1], vec![]]);
}

#[tokio::test]
async fn samples_dropped_and_outcomes_are_those_of_the_source() {
    let rig = Rig::new(TABLE, Sink::default());
    let outcomes = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let seen = Arc::clone(&outcomes);
    let mut batch = Batch::live(profiles(3));
    assert_eq!(batch.source, Source::Live);
    batch
        .finalizers
        .add(Finalizer::new(move |outcome| seen.lock().push(outcome)));
    let expected = batch.source_samples();
    rig.connector.process(batch, &rig.next).await.unwrap();
    assert_eq!(rig.connector.removed_samples(), expected);
    assert_eq!(*outcomes.lock(), [Outcome::Delivered]);
}

#[tokio::test]
async fn a_condition_that_fails_refuses_the_batch_or_is_ignored() {
    let with = |mode: &str| {
        format!(
            "{{default_pipelines: [profiles/default], error_mode: {mode}, table: [{{condition: 'IsMatch(attributes[\"args\"], \"x\")', pipelines: [profiles/a]}}, {{condition: 'true', pipelines: [profiles/b]}}]}}"
        )
    };
    for (mode, is_refused) in [("propagate", true), ("ignore", false), ("silent", false)] {
        let rig = Rig::new(&with(mode), Sink::default());
        let mut profiles = profiles(2);
        profiles.update_resources(|resource: &mut Resource| {
            resource.attributes = checkout();
            true
        });
        let answer = rig.connector.process(Batch::new(profiles), &rig.next).await;
        let expected = match is_refused {
            true => {
                let reason = "IsMatch needs text, a number or a boolean, but the attribute \"args\" is a list";
                assert_eq!(answer, Err(Refusal::permanent(reason)));
                [vec![], vec![], vec![]]
            }
            false => [vec![], vec![], vec![2]],
        };
        assert_eq!(rig.accepted(), expected, "{mode}");
    }
}

#[test]
fn checks_its_options() {
    let refused = |text: &str, expected: &str| {
        assert_eq!(load::<RoutingConfig>(text).unwrap_err(), expected);
    };
    refused(
        "{}",
        "table: invalid routing table: the routing table is empty",
    );
    refused(
        "{table: [{pipelines: [profiles]}, {condition: 'true', statement: route()}, {condition: 'yes', pipelines: [profiles]}]}",
        "table::0: invalid route: no condition or statement provided\n\
         table::1: invalid route: both condition and statement provided\n\
         table::1::pipelines: invalid route: no pipelines defined\n\
         table::2::condition: character 1: expected an attribute or `IsMatch`, found `yes`",
    );
    let config: RoutingConfig = load(&format!("default_pipelines: [profiles]{TABLE}")).unwrap();
    let named = config.named_pipelines().into_iter();
    let named: Vec<String> = named.map(|(path, id)| format!("{path}={id}")).collect();
    assert_eq!(
        named,
        [
            "default_pipelines::0=profiles",
            "table::0::pipelines::0=profiles/a",
            "table::0::pipelines::1=profiles/b",
            "table::1::pipelines::0=profiles/b",
        ]
    );
}
