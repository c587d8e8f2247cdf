//! Handmade YAML: the tree, the place of each node, and each message with its place and help.

use super::*;
use crate::problem::Problems;

fn read(text: &str) -> Result<Node, Problem> {
    let mut sources = Sources::default();
    let id = sources.add("t.yaml", text, None).expect("small");
    parse(&sources, id)
}

#[track_caller]
fn check(text: &str, expected: &str) {
    let json = read(text)
        .unwrap_or_else(|p| panic!("{text:?}: {p}"))
        .to_json();
    assert_eq!(json.to_string(), expected, "{text:?}");
}

/// `expected` is the message, its location and its help.
#[track_caller]
fn refused(text: &str, expected: &str) {
    let problem = read(text).expect_err(text);
    let at = problem.at.expect("every problem has a location");
    let help = problem
        .help
        .map(|help| format!(" ({help})"))
        .unwrap_or_default();
    assert_eq!(
        format!("{}:{} {}{help}", at.line, at.column, problem.message),
        expected,
        "{text:?}"
    );
}

#[test]
fn composes_yaml() {
    check("", "null");
    check("# nothing", "null");
    check(
        "a: 1\nb: [x, '1', \"2\", 0x10]\nc:\n- d: ~\n",
        r#"{"a":1,"b":["x","1","2",16],"c":[{"d":null}]}"#,
    );
    check(
        "a: !!str 0123\nb: !!int '7'\nc: !!float 1",
        r#"{"a":"0123","b":7,"c":1.0}"#,
    );
    check(
        "a: !<tag:yaml.org,2002:str> 1\nb: ! 1",
        r#"{"a":"1","b":"1"}"#,
    );
    check("1: a\ntrue: b", r#"{"1":"a","true":"b"}"#);
    check("\u{feff}a: 1", r#"{"a":1}"#);
    check("a: |\n  x\n  y\n", r#"{"a":"x\ny\n"}"#);
    check("---\na: 1\n...\n", r#"{"a":1}"#);
}

#[test]
fn expands_anchors_and_merge_keys() {
    check("a: &x {k: 1}\nb: *x", r#"{"a":{"k":1},"b":{"k":1}}"#);
    check(
        "base: &b {x: 1, y: 2}\nmore: &m {y: 3, z: 4}\none: {<<: *b, y: 9}\ntwo: {<<: [*m, *b]}",
        r#"{"base":{"x":1,"y":2},"more":{"y":3,"z":4},"one":{"x":1,"y":9},"two":{"x":1,"y":3,"z":4}}"#,
    );
    check("'<<': 1", r#"{"<<":1}"#);
}

#[test]
fn keeps_locations() {
    let node = read("a:\n  b: [x, yy]").expect("valid YAML");
    let place = |path: &str| {
        let at = node.locate(path.split("::"));
        (at.line, at.column, at.width)
    };
    assert_eq!(place("a"), (1, 1, 1));
    assert_eq!(place("a::b"), (2, 3, 1));
    assert_eq!(place("a::b::1"), (2, 10, 2));
    assert_eq!(place("a::missing"), (1, 1, 1));
}

#[test]
fn reports_syntax_errors() {
    let tab = "found a tab where YAML requires spaces (use spaces for indentation and after `:`; a tab is only allowed inside text)";
    for (text, expected) in [
        ("exporters:\n\tdebug:\n", format!("2:2 {tab}")),
        ("a:\tb", format!("1:4 {tab}")),
        ("a: b\n\tc", format!("1:4 {tab}")),
        ("a: b\n c\n\td", format!("1:4 {tab}")),
        (
            "a: !<tag:x>y\t",
            "1:4 not valid YAML: while scanning a tag, did not find expected whitespace or line break".to_owned(),
        ),
        ("a: [*b]", "1:5 not valid YAML: while parsing node, found unknown anchor".to_owned()),
        (
            "receivers: {otlp: {protocols: {grpc: }}\nexporters:\n  debug:\n",
            "2:1 not valid YAML: invalid indentation in flow construct (close the bracket; inside brackets, text that holds one (`${…}` too) needs quotes)".to_owned(),
        ),
        (
            "a: 1\n---\nb: 2\n",
            "2:1 more than one YAML document (use one document per file, and merge several files with `--config`)".to_owned(),
        ),
        ("a: &a [*a]", "1:8 the anchored value contains an alias to itself".to_owned()),
        ("a: *nobody", "1:4 not valid YAML: while parsing node, found unknown anchor".to_owned()),
        ("a: !!binary aGk=", "1:4 unsupported YAML tag `!!binary`".to_owned()),
        ("a: !custom x", "1:4 unsupported YAML tag `!custom`".to_owned()),
        ("a: !!int x", "1:4 cannot read `x` as a !!int".to_owned()),
        ("<<: 1", "1:5 `<<` takes a map, or a list of maps, to merge into this one".to_owned()),
        ("[a]: 1", "1:1 a list cannot be the key of a map".to_owned()),
        ("a: 'open", "1:4 not valid YAML: while scanning a quoted scalar, found unexpected end of stream".to_owned()),
        (
            "a: b: c",
            "1:5 not valid YAML: mapping values are not allowed in this context (check the indentation, and put text that holds `: ` in quotes)".to_owned(),
        ),
        (
            "a: @b",
            "1:4 not valid YAML: unexpected character: `@' (put text that starts with a special character in quotes)".to_owned(),
        ),
        ("a: \0", "1:4 not valid YAML: found unprintable character".to_owned()),
    ] {
        refused(text, &expected);
    }
    for deep in [
        "[".repeat(129),
        "[".repeat(300),
        "- ".repeat(129),
        format!("a: &a {}1{}\nb: [*a]", "[".repeat(127), "]".repeat(127)),
    ] {
        let problem = read(&deep).expect_err("too deep");
        assert_eq!(problem.message, "nested deeper than 128 levels");
    }
    read(&format!("{}1{}", "[".repeat(128), "]".repeat(128))).expect("128 levels are allowed");
}

#[test]
fn shows_both_locations_of_a_duplicate_key() {
    let mut sources = Sources::default();
    let id = sources
        .add("t.yaml", "receivers: {}\nreceivers: {}\n", None)
        .expect("small");
    let problems = Problems::from(parse(&sources, id).expect_err("repeated"));
    assert_eq!(
        problems.report(&sources).to_string(),
        r#"mapping key "receivers" already defined at line 1
 --> t.yaml:2:1
  |
2 | receivers: {}
  | ^^^^^^^^^
 --> t.yaml:1:1
  |
1 | receivers: {}
  | ^^^^^^^^^ first defined here
  = help: YAML would keep only one of the two; join their contents or remove one"#
    );
}
