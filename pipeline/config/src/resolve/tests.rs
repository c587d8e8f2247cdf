//! Fake variables and files, outputs of a real Collector, and hostile text: expansion, merging, and the messages.

use std::collections::HashMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::*;
use crate::{Config, load, print};

/// Providers with a few variables and files.
#[derive(Default)]
struct FakeProviders {
    env: HashMap<String, String>,
    files: HashMap<String, String>,
}

impl ConfigProviders for FakeProviders {
    fn env(&self, name: &str) -> Result<Option<String>, ProviderError> {
        Ok(self.env.get(name).cloned())
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, ProviderError> {
        let missing = || ProviderError::Open {
            path: path.to_owned(),
            error: std::io::Error::from_raw_os_error(2),
        };
        self.files
            .get(path)
            .map(|text| text.as_bytes().to_vec())
            .ok_or_else(missing)
    }

    fn fetch(&self, url: &str) -> Result<Vec<u8>, ProviderError> {
        match url {
            "https://host/x.yaml" => Ok(b"a: fetched".to_vec()),
            _ => Err(ProviderError::Fetch("status 404".into())),
        }
    }
}

fn small(env: &[(&str, &str)], files: &[(&str, &str)]) -> FakeProviders {
    let owned = |pairs: &[(&str, &str)]| {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    };
    FakeProviders {
        env: owned(env),
        files: owned(files),
    }
}

fn input(configs: &[&str], sets: &[&str]) -> Input {
    let owned = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
    Input {
        configs: owned(configs),
        sets: owned(sets),
    }
}

fn read(
    configs: &[&str],
    sets: &[&str],
    providers: &FakeProviders,
) -> Result<Resolved, Unresolved> {
    resolve(&input(configs, sets), providers)
}

#[track_caller]
fn merged(configs: &[&str], sets: &[&str], expected: &str) {
    let resolved = read(configs, sets, &FakeProviders::default()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(resolved.root.to_json().to_string(), expected);
}

#[track_caller]
fn refused(configs: &[&str], sets: &[&str], providers: &FakeProviders, expected: &str) {
    let unresolved = read(configs, sets, providers).expect_err("refused");
    assert_eq!(unresolved.problems.to_string(), expected);
}

/// One field of each kind, as the Collector's own tests of expansion use them.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct Fields {
    int: i64,
    string: String,
    bool: bool,
    list: Vec<String>,
    map: std::collections::BTreeMap<String, String>,
}

impl Config for Fields {}

/// The field as print-config shows it, or the problem.
fn field(kind: &str, value: &str, providers: &FakeProviders) -> String {
    let config = format!("yaml:{kind}: {value}");
    let resolved = match read(&[&config], &[], providers) {
        Ok(resolved) => resolved,
        Err(unresolved) => {
            let message = unresolved
                .problems
                .iter()
                .map(|p| p.message.clone())
                .collect::<Vec<_>>();
            return format!("error: {}", message.join("; "));
        }
    };
    let mut problems = Problems::default();
    match load::<Fields>(&resolved.root, &mut problems) {
        Some(fields) => {
            let json = serde_json::to_value(fields).expect("fields are plain");
            let printed = print::to_yaml(json.get(kind).expect("the field exists"));
            printed.strip_suffix('\n').unwrap_or(&printed).to_owned()
        }
        None => {
            let message = problems
                .iter()
                .map(|p| p.message.clone())
                .collect::<Vec<_>>();
            format!("error: {}", message.join("; "))
        }
    }
}

fn golden(name: &str) -> String {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

/// The texts between backticks.
fn ticked(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn expands_as_a_real_collector_did() {
    let table = golden("expansion.md");
    let rows: Vec<&str> = table
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    assert!(rows.len() > 25, "failed to parse the table");
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [value, env, expected] = cells.as_slice() else {
            panic!("a row of three cells: {row}")
        };
        let names = env
            .split('`')
            .step_by(2)
            .map(|name| name.trim().trim_end_matches('='));
        let values = ticked(env);
        let mut providers = small(
            &[("ENV_VALUE", "some expanded value")],
            &[("f.txt", "from file\n")],
        );
        providers
            .env
            .extend(names.zip(values).map(|(k, v)| (k.to_owned(), v.to_owned())));
        let value = ticked(value).concat();
        let got = field("string", &quoted(&value), &providers);
        let expected = match expected
            .strip_prefix("error: failed to get config: cannot resolve the configuration: ")
        {
            Some(message) => format!("error: {message}"),
            None if value == "${file:f.txt}" => "|\n    from file".to_owned(),
            None => ticked(expected).concat(),
        };
        assert_eq!(got, expected, "{row}");
    }
}

/// Each row is tested directly and through one more variable.
#[test]
fn an_expanded_value_has_a_type_and_a_text() {
    let env_name = "environment variable \"hello.world\" has invalid name: must match regex ^[a-zA-Z_][a-zA-Z0-9_]*$";
    let refused = |expected, got| {
        format!("error: expected type '{expected}', got unconvertible type '{got}'")
    };
    let commented = "true # comment with a ${env:hello.world} reference";
    let rows: Vec<(&str, &str, String)> = vec![
        ("123", "int", "123".to_owned()),
        ("123", "string", "\"123\"".to_owned()),
        ("123", "bool", refused("bool", "int")),
        ("0123", "int", "83".to_owned()),
        ("0123", "string", "\"0123\"".to_owned()),
        ("0xdeadbeef", "int", "3735928559".to_owned()),
        ("0xdeadbeef", "string", "\"0xdeadbeef\"".to_owned()),
        ("\"0123\"", "int", refused("int", "string")),
        ("\"0123\"", "string", "'\"0123\"'".to_owned()),
        ("!!str 0123", "string", "'!!str 0123'".to_owned()),
        ("t", "bool", refused("bool", "string")),
        ("true", "bool", "true".to_owned()),
        (commented, "bool", "true".to_owned()),
        (commented, "string", refused("string", "bool")),
        ("[\"a\",", "string", "'[\"a\",'".to_owned()),
        (
            "[filelog,windowseventlog/application]",
            "string",
            "'[filelog,windowseventlog/application]'".to_owned(),
        ),
        (
            "[filelog,windowseventlog/application]",
            "list",
            "- filelog\n- windowseventlog/application".to_owned(),
        ),
        ("a,b", "list", "- a\n- b".to_owned()),
        (
            "2006-01-02T15:04:05Z07:00",
            "string",
            "\"2006-01-02T15:04:05Z07:00\"".to_owned(),
        ),
        ("1111:1111::", "string", "'1111:1111::'".to_owned()),
        ("$$ENV", "string", "$ENV".to_owned()),
        ("$${ENV}", "string", "${ENV}".to_owned()),
        ("$${env:ENV}", "string", "${env:ENV}".to_owned()),
        ("['$$A','$${A}']", "list", "- $A\n- ${A}".to_owned()),
        ("{a: '${env:B}'}", "map", "a: bee".to_owned()),
        ("", "int", "0".to_owned()),
        ("", "string", "\"\"".to_owned()),
        ("null", "string", "\"null\"".to_owned()),
    ];
    let inline: Vec<(&str, String)> = vec![
        ("123", "123".to_owned()),
        ("0123", "0123".to_owned()),
        ("0xdeadbeef", "0xdeadbeef".to_owned()),
        ("\"0123\"", "\"0123\"".to_owned()),
        ("!!str 0123", "!!str 0123".to_owned()),
        ("[\"a\",", "[\"a\",".to_owned()),
        ("1111:1111::", "1111:1111::".to_owned()),
        ("$$ENV", "$ENV".to_owned()),
        ("$${env:ENV}", "${env:ENV}".to_owned()),
    ];
    for indirect in [false, true] {
        let providers = |text: &str| match indirect {
            false => small(&[("ENV", text), ("B", "bee")], &[]),
            true => small(&[("ENV", "${env:ENV2}"), ("ENV2", text), ("B", "bee")], &[]),
        };
        for (text, kind, expected) in &rows {
            assert_eq!(
                field(kind, "${env:ENV}", &providers(text)),
                *expected,
                "{text} as {kind}, indirect {indirect}"
            );
        }
        for (text, expected) in &inline {
            let got = field("string", "\"<${env:ENV}>\"", &providers(text));
            assert_eq!(got, format!("<{expected}>"), "{text}, indirect {indirect}");
        }
        let got = field("string", "\"<${env:ENV}>\"", &providers(commented));
        assert_eq!(got, format!("error: {env_name}"));
    }
}

#[test]
fn ignores_references_in_comments_of_included_files() {
    let providers = small(&[], &[("f.yaml", "# ${env:bad.name} ${env:UNSET}\na: b\n")]);
    let resolved =
        read(&["yaml:map: ${file:f.yaml}"], &[], &providers).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(resolved.root.to_json().to_string(), r#"{"map":{"a":"b"}}"#);
    assert_eq!(resolved.notes, []);
}

#[test]
fn notes_unset_and_empty_variables_once() {
    let providers = small(&[("E", "")], &[]);
    let resolved = read(
        &["yaml:{a: '${U}', b: 'x${env:U}', c: '${E}', d: '${env:U:-1}'}"],
        &[],
        &providers,
    );
    let notes = resolved.unwrap_or_else(|e| panic!("{e}")).notes;
    let messages: Vec<_> = notes
        .iter()
        .map(|note| (note.level, note.message.as_str()))
        .collect();
    assert_eq!(
        messages,
        [
            (
                NoteLevel::Warning,
                "configuration references unset environment variable \"U\""
            ),
            (
                NoteLevel::Info,
                "configuration references empty environment variable \"E\""
            ),
        ]
    );
}

#[test]
fn later_configurations_win() {
    merged(
        &["yaml:{a: {b: 1, c: [1, 2]}}", "yaml:{a: {c: [3], d: 4}}"],
        &[],
        r#"{"a":{"b":1,"c":[3],"d":4}}"#,
    );
    merged(&["yaml:{p: {x: 1}}", "yaml:p:"], &[], r#"{"p":null}"#);
    merged(&["yaml:{p: {x: 1}}", "yaml:p: {}"], &[], r#"{"p":{"x":1}}"#);
    merged(&["yaml:p:", "yaml:p: {x: 1}"], &[], r#"{"p":{"x":1}}"#);
    merged(
        &["yaml:{p: 1}", "yaml:{p: {x: 1}}", "yaml:"],
        &[],
        r#"{"p":{"x":1}}"#,
    );
    merged(
        &["yaml:exporters::debug::verbosity: detailed"],
        &[],
        r#"{"exporters":{"debug":{"verbosity":"detailed"}}}"#,
    );
    merged(
        &["yaml:{a: {b::c: 1, b: {d: 2}}, '::1': x}"],
        &[],
        r#"{"::1":"x","a":{"b":{"c":1,"d":2}}}"#,
    );
}

#[test]
fn set_overrides_files() {
    merged(
        &["yaml:{processors: {batch: {timeout: 1s, size: 5}}}"],
        &["processors.batch.timeout=2s", " a = [1, 2]", "b=x=y"],
        r#"{"a":[1,2],"b":"x=y","processors":{"batch":{"size":5,"timeout":"2s"}}}"#,
    );
    refused(
        &["yaml:a: 1"],
        &["a"],
        &FakeProviders::default(),
        "--set \"a\": missing equal sign",
    );
}

#[test]
fn reads_every_kind_of_source() {
    let providers = small(
        &[("CFG", "a: from env")],
        &[("x.yaml", "a: from file"), ("c:x.yaml", "a: drive")],
    );
    for (uri, expected) in [
        ("x.yaml", "from file"),
        ("file:x.yaml", "from file"),
        ("c:x.yaml", "drive"),
        ("env:CFG", "from env"),
        ("env:NONE:-a: default", "default"),
        ("yaml:a: ${file:x.yaml}", "a: from file"),
        ("https://host/x.yaml", "fetched"),
    ] {
        let resolved = read(&[uri], &[], &providers).unwrap_or_else(|e| panic!("{uri}: {e}"));
        let a = resolved.root.get("a").and_then(Node::as_str);
        assert_eq!(a, Some(expected), "{uri}");
    }
}

#[test]
fn reports_unreadable_sources() {
    let providers = small(
        &[],
        &[
            ("bad.yaml", "a: [1"),
            ("text.yaml", "just text"),
            ("l.yaml", "[1]"),
        ],
    );
    let check = |uri: &str, expected: &str| refused(&[uri], &[], &providers, expected);
    check(
        "none.txt",
        "unable to read the file file:none.txt: open none.txt: no such file or directory",
    );
    check(
        "http://h/404",
        "unable to download \"http://h/404\": status 404",
    );
    check("ftp://h/x", "unsupported scheme on URI \"ftp://h/x\"");
    check("/a:b", "invalid uri: \"/a:b\"");
    check(
        "text.yaml",
        "retrieved value (type=string) cannot be used as a configuration",
    );
    check(
        "l.yaml",
        "retrieved value (type=list) cannot be used as a configuration",
    );
    check(
        "yaml:a: ${foo:x}",
        "a: scheme \"foo\" is not supported for uri \"foo:x\"",
    );
    let problem = read(&["yaml:a: ${PORT:-1}"], &[], &providers)
        .expect_err("no scheme")
        .problems;
    let help = problem.iter().next().and_then(|p| p.help.clone());
    assert_eq!(help.as_deref(), Some("write `${env:PORT:-1}`"));
    check("yaml:a: ${x:y}", "a: invalid uri: \"x:y\"");
    check(
        "yaml:a: ${env:A:-$x}",
        "a: the uri \"env:A:-$x\" contains unsupported characters ('$')",
    );
    check(
        "yaml:{a: '${file:none.txt}', b: ['${env:b.c}']}",
        "a: unable to read the file file:none.txt: open none.txt: no such file or directory\n\
         b::0: environment variable \"b.c\" has invalid name: must match regex ^[a-zA-Z_][a-zA-Z0-9_]*$",
    );
    refused(
        &[],
        &[],
        &providers,
        "at least one config flag must be provided",
    );
    let host = SystemProviders::default();
    let error = resolve(&input(&["https://h/x"], &[]), &host).expect_err("no client");
    assert_eq!(
        error.problems.to_string(),
        "unable to download \"https://h/x\": no HTTP client available"
    );
}

#[test]
fn files_have_a_size_limit() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("x.yaml");
    let uri = path.to_string_lossy().into_owned();
    let host = SystemProviders::default();
    let at_host = |uri: &str| resolve(&input(&[uri], &[]), &host);
    let error = at_host(&uri)
        .expect_err("missing file")
        .problems
        .to_string();
    assert_eq!(
        error,
        format!("unable to read the file file:{uri}: open {uri}: no such file or directory")
    );
    let there = folder.path().to_string_lossy().into_owned();
    let error = at_host(&there)
        .expect_err("a directory")
        .problems
        .to_string();
    assert_eq!(
        error,
        format!("unable to read the file file:{there}: read {there}: is a directory")
    );
    std::fs::write(&path, "a: 1").expect("writes");
    assert_eq!(
        at_host(&uri).expect("reads").root.to_json().to_string(),
        r#"{"a":1}"#
    );
    std::fs::write(&path, [b'a', b':', b' ', 0xff]).expect("writes");
    let error = at_host(&uri).expect_err("not UTF-8").problems.to_string();
    assert!(error.ends_with("is not UTF-8 text (line 1)"), "{error}");
    std::fs::write(&path, vec![b'#'; crate::sources::MAX_TEXT_BYTES + 1]).expect("writes");
    let error = at_host("/dev/zero")
        .expect_err("endless")
        .problems
        .to_string();
    assert_eq!(error, "`/dev/zero` is larger than 16 MiB");
    let error = at_host(&uri).expect_err("too large").problems.to_string();
    assert!(error.ends_with("is larger than 16 MiB"), "{error}");
}

#[test]
fn a_problem_in_expanded_text_shows_the_text_and_its_reference() {
    let providers = small(&[("N", "many")], &[("t.yaml", "bool: maybe\nmap: {}\n")]);
    let resolved = read(&["yaml:{int: '${env:N}', list: [1]}"], &[], &providers)
        .unwrap_or_else(|e| panic!("{e}"));
    let mut problems = Problems::default();
    assert_eq!(load::<Fields>(&resolved.root, &mut problems), None);
    assert_eq!(
        problems.report(&resolved.sources).to_string(),
        "int: expected type 'int', got unconvertible type 'string'\n\
         \x20--> env:N:1:1\n\
         \x20 |\n\
         1 | many\n\
         \x20 | ^\n\
         \x20 = used at yaml:int:1:8\n\
         \n\
         list::0: expected type 'string', got unconvertible type 'int'\n\
         \x20--> yaml:int:1:26\n\
         \x20 |\n\
         1 | {int: '${env:N}', list: [1]}\n\
         \x20 |                          ^\n\
         \x20 = help: quote it to make it a string"
    );
}

#[test]
fn rejects_expansion_bombs() {
    let mut env: Vec<(String, String)> = (0..40)
        .map(|i| (format!("A{i}"), format!("${{A{0}}}${{A{0}}}", i + 1)))
        .collect();
    env.extend((0..40).map(|i| {
        (
            format!("L{i}"),
            format!("[\"${{L{0}}}\", \"${{L{0}}}\"]", i + 1),
        )
    }));
    env.push(("SELF".to_owned(), "[\"${SELF}\"]".to_owned()));
    env.push(("GROW".to_owned(), "x${GROW}${GROW}".to_owned()));
    let providers = FakeProviders {
        env: env.into_iter().collect(),
        files: HashMap::new(),
    };
    let too_much_text = "expanded configuration exceeds 64 MiB";
    for (value, expected) in [
        ("${A0}", too_much_text),
        ("${GROW}", too_much_text),
        (
            "${L0}",
            "the configuration has more than 16384 sources (each expanded `${…}` counts as one)",
        ),
        ("${SELF}", "too many recursive expansions"),
    ] {
        let config = format!("yaml:a: {value}");
        let error = read(&[&config], &[], &providers).expect_err(value).problems;
        assert_eq!(
            error.iter().next().map(|p| p.message.as_str()),
            Some(expected),
            "{value}"
        );
    }
}

/// Inputs that broke, or could break, a parser: each must yield a tree or problems, never a panic, stack overflow or
/// minutes of work.
#[test]
fn hostile_bytes_end_in_a_result() {
    const MANY: usize = 10 << 20;
    const SOME: usize = 1 << 20;
    let laughs = (1..30).fold("a0: &a0 [x, x]\n".to_owned(), |text, i| {
        format!("{text}a{i}: &a{i} [*a{0}, *a{0}]\n", i - 1)
    });
    let merges = (1..30).fold("a0: &a0 {k: v}\n".to_owned(), |text, i| {
        format!(
            "{text}a{i}: &a{i} {{<<: [*a{0}, *a{0}], k{i}: *a{0}}}\n",
            i - 1
        )
    });
    let filled = |piece: &str, size: usize| piece.repeat(size / piece.len()).into_bytes();
    let mut cases: Vec<Vec<u8>> = ["[", "- ", "{"]
        .iter()
        .map(|piece| filled(piece, MANY))
        .collect();
    for piece in [
        "? ", "a: {", "&a [", "!!seq [", "${", "}", "$", "\"", "'", "|", "a::", "[[],", "* ", "\0",
    ] {
        cases.push(filled(piece, SOME));
    }
    cases.extend([
        laughs.into_bytes(),
        merges.into_bytes(),
        format!("{}: 1", "a::".repeat(1 << 20) + "a").into_bytes(),
        format!("a: '{}'", "${X}".repeat(1 << 18)).into_bytes(),
        format!("a: '{}{}'", "${".repeat(1 << 18), "}".repeat(1 << 18)).into_bytes(),
        (0..1 << 18)
            .fold(String::new(), |text, i| text + &format!("k{i}: v\n"))
            .into_bytes(),
        (0..1 << 16)
            .fold("a: [".to_owned(), |text, i| {
                text + &format!("'${{env:V{i}:-1}}',")
            })
            .into_bytes(),
        "a: '${file:input}'".into(),
        "${SELF}".into(),
        "a: ${SELF}".into(),
        "[${SELF}]".into(),
        b"\xff\xfe\x00".to_vec(),
        b"\xef\xbb\xbfa: 1".to_vec(),
        b"a: \x00".to_vec(),
        "\u{85}\u{2028}\u{2029}a: \u{feff}".into(),
        "%YAML 9.9\n---\na: 1".into(),
        "a: &a\n  <<: *a".into(),
        "a: \"\\x".into(),
        "a: \"\\UFFFFFFFF\"".into(),
        "a: !<tag:yaml.org,2002:str> x".into(),
        "--- |\n%!PS".into(),
        vec![b'#'; crate::sources::MAX_TEXT_BYTES + 1],
    ]);
    for bytes in cases {
        let outcome = match parse_untrusted(&bytes) {
            Ok(resolved) => resolved.root.value.kind().to_owned(),
            Err(unresolved) => unresolved.to_string(),
        };
        let shown = String::from_utf8_lossy(bytes.get(..bytes.len().min(20)).unwrap_or_default())
            .into_owned();
        assert!(!outcome.is_empty(), "{shown:?}");
    }
}

proptest::proptest! {
    #[test]
    fn any_text_ends_in_a_result(text in "(?s)(\\$\\{(env|file|yaml):|[-a-c:{}\\[\\],&*!|>'\"%@# \n\t$0-9]|\\$\\{X\\}|<<: |: |\n  |- ){0,40}") {
        let printed = match parse_untrusted(text.as_bytes()) {
            Ok(resolved) => print::to_yaml(&resolved.root.to_json()),
            Err(unresolved) => unresolved.to_string(),
        };
        proptest::prop_assert!(!printed.is_empty());
    }
}

/// The real Collector's print-config, read and printed again, is the same text.
#[test]
fn prints_as_a_real_collector_did() {
    for name in [
        "merge",
        "ok-memory-limiter",
        "ok-minimal",
        "ok-named",
        "ok-old-names",
        "ok-queue",
        "ok-set",
    ] {
        let golden = golden(&format!("collector/{name}.print-config.txt"));
        let (_, printed) = golden
            .split_once("--- stdout\n")
            .expect("the golden file has its output");
        let (printed, _) = printed
            .split_once("\n--- stderr")
            .expect("the golden file has its errors");
        let mut sources = Sources::default();
        let id = sources.add(name, printed, None).expect("small");
        let node = crate::yaml::parse(&sources, id).unwrap_or_else(|p| panic!("{name}: {p}"));
        assert_eq!(print::to_yaml(&node.to_json()), printed, "{name}");
    }
}

#[test]
fn merges_as_a_real_collector_did() {
    let printed = golden("collector/merge.print-config.txt");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/collector/");
    let files = [
        format!("{folder}merge-1.yaml"),
        format!("{folder}merge-2.yaml"),
    ];
    let input = Input {
        configs: files.to_vec(),
        sets: Vec::new(),
    };
    let root = resolve(&input, &SystemProviders::default())
        .unwrap_or_else(|e| panic!("{e}"))
        .root;
    let expected = r#"{"exporters":{"debug":{"verbosity":"detailed"},"otlp_grpc":{"endpoint":"h:1"}},"processors":null,"receivers":{"otlp":{"protocols":{"grpc":{"endpoint":"a:1"},"http":{"endpoint":"b:2"}}}},"service":{"pipelines":{"profiles":{"exporters":["debug"],"processors":[],"receivers":["otlp"]}}}}"#;
    assert_eq!(root.to_json().to_string(), expected);
    assert!(
        printed.contains("processors: {}")
            && printed.contains("endpoint: a:1")
            && printed.contains("endpoint: b:2")
    );
}

#[test]
fn rejects_what_a_real_collector_rejected() {
    for (name, expected) in [
        (
            "bad-duplicate-key",
            "mapping key \"receivers\" already defined at line 1",
        ),
        (
            "bad-yaml",
            "not valid YAML: invalid indentation in flow construct",
        ),
        (
            "bad-env-name",
            "exporters::debug::verbosity: environment variable \"hello.world\" has invalid name: must match regex ^[a-zA-Z_][a-zA-Z0-9_]*$",
        ),
    ] {
        let text = golden(&format!("collector/{name}.yaml"));
        let providers = small(&[], &[(name, text.as_str())]);
        refused(&[name], &[], &providers, expected);
    }
}
