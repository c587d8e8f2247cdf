//! The fixed cases, and the building blocks of random cases.

use profcol_labels::{Action, RuleSpec};

use super::Case;

pub const ACTIONS: &[Action] = &[
    Action::Replace,
    Action::Replace,
    Action::Replace,
    Action::Keep,
    Action::Drop,
    Action::KeepEqual,
    Action::DropEqual,
    Action::HashMod,
    Action::LabelMap,
    Action::LabelDrop,
    Action::LabelKeep,
    Action::Lowercase,
    Action::Uppercase,
];

pub const NAMES: &[&str] = &[
    "a",
    "b",
    "c",
    "node",
    "__meta_a",
    "__meta_b",
    "__meta_kubernetes_pod_label_app",
    "__meta_kubernetes_pod_label_app_kubernetes_io_name",
    "app.kubernetes.io/name",
    "ключ",
];

pub const VALUES: &[&str] = &[
    "",
    "x",
    "foo",
    "foo bar",
    "Foo-42.example:80",
    "two\nlines",
    "a;b;;c",
    "vte@a@b.service",
    ";",
    "aaaa_ö_é",
    "straße Ünïcödé",
    "/system.slice/nginx.service",
    "ΑΣΣ İ ǆ",
    "web-5c7d-x2",
    "-foo",
];

pub const TARGETS: &[&str] = &[
    "a",
    "b",
    "d",
    "$1",
    "x_${1}",
    "__tmp",
    "${2}y",
    "new.name/x",
];

pub const REPLACEMENTS: &[&str] = &[
    "$1",
    "$0",
    "${1}",
    "$1x",
    "${1}x",
    "$$1",
    "$",
    "$$",
    "${",
    "${1",
    "$2",
    "$name",
    "${name}!",
    "",
    "constant",
    "$01",
    "$1-$0",
    "$ключ",
    "a${1}b${2}c",
    "$1_",
    "$999999999999",
];

pub const REGEXES: &[&str] = &[
    "(.*)",
    "",
    "foo",
    "(foo|bar)",
    "(?P<name>[a-z]+).*",
    "(?<name>f)oo",
    "__meta_kubernetes_pod_label_(.+)",
    "__meta_(.+)",
    "(a|b|c)",
    ".+",
    "f(o+)(.*)?",
    "(?i)FOO.*",
    r"(\w+)[-.](\d+).*",
    r"\w+",
    r"[\w\s]+",
    r".*\d{2}.*",
    r".*\bbar",
    r"/system\.slice/(.+)\.service",
    r"[[:alpha:]]+",
    r"[^[:digit:]]*",
    r"[[a]+",
    r"[]a]+",
    r"[a&&b~~c--d]+",
    r"\Q.+\E|x",
    r"a{,2}",
    r"{a}",
    r"x{1,2}",
    r"foo.*",
    r"foo(.+)",
    r"Foo-(.*)",
    r"fo?o",
    r"foo|x",
    r"(.+)",
    r"([^-]+)-.*",
    r"([^;]*);(.*)",
    r"([^;]+);b;([^;]*)",
    r"([^@]+)@([^@]+)@.+",
    r"(.+)-([^-]+)",
    r".*;[^;]*",
    r"[^ö]+ö(.*)",
    r"(foo|F)[^o]*(.+)",
    r"([^.]+)",
    r"[^-]+foo",
    r"([^/]*)/[^/]+",
    r"(two)[^x]+s",
    r"(x",
    r"x**",
    r"x{2}{3}",
    r"(?x)a b",
    r"\pL+",
    r"\p{Greek}.*",
    r"\x{66}oo",
    r"\146oo",
    r"\1",
    r"(?U)(.+)(.+)",
    r"(.*?)(o*)",
    r"a)|(b",
    r"(?=a)",
    r"\<foo\>",
    r"x{1001}",
    "(foo|F|Fo).*",
    "(F|Fo)(.+)",
    "(f|fo|foo).+",
    "().*",
    "(x|)(.*)",
    "(.+);(.+)",
    "(.*);(.*)",
    "(.+)@.+\\.service",
    r".+\-.+",
    "(.+)ö(.*)",
    "(.*)(.+)",
    ".+(.+)e",
    r"/(.+)/(.+)\.service",
    "(.*)aa(.*)",
    "(.+)o(.+)o",
    r"(.+)\_(.+)",
    ".*e?",
    "(.*)?x",
    "(foo|bar)*.*",
    ".*é",
    r"\u0061",
    r"[z-a]",
    r"[a",
];

/// A rule for each combination of regular expression and value, and edge cases.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |rules: &[RuleSpec], labels: &[(&str, &str)]| {
        let owned = |&(name, text): &(&str, &str)| (name.to_owned(), text.to_owned());
        cases.push(Case {
            rules: rules.to_vec(),
            labels: labels.iter().map(owned).collect(),
        });
    };
    let replace = |regex: &str, target: &str, replacement: &str| RuleSpec {
        source_labels: vec!["a".into()],
        regex: regex.into(),
        target_label: target.into(),
        replacement: replacement.into(),
        ..RuleSpec::default()
    };
    for regex in REGEXES {
        for value in VALUES {
            add(
                &[replace(regex, "b", "<$0|$1|$2|${name}>")],
                &[("a", value)],
            );
        }
    }
    for replacement in REPLACEMENTS {
        for regex in ["(.*)", "(f)(.*)", "(?P<name>.*)"] {
            let rule = replace(regex, "b", replacement);
            add(std::slice::from_ref(&rule), &[("a", "foo"), ("b", "old")]);
            add(&[replace(regex, replacement, "new")], &[("a", "foo")]);
            let map = RuleSpec {
                source_labels: Vec::new(),
                target_label: String::new(),
                action: Action::LabelMap,
                ..rule
            };
            add(&[map], &[("f", "1"), ("fa", "2"), ("g", "3")]);
        }
    }
    for &action in ACTIONS {
        let sources: [&[&str]; 4] = [&[], &["a"], &["a", "b"], &["a", "missing", "b"]];
        for source_labels in sources {
            for target in ["", "a", "c", "$1"] {
                for (modulus, separator, replacement) in [
                    (0, ";", "$1"),
                    (7, ";", "$1"),
                    (0, "", "$1"),
                    (0, ";", "x"),
                    (0, ";", ""),
                ] {
                    let rule = RuleSpec {
                        source_labels: source_labels.iter().map(|&it| it.into()).collect(),
                        separator: separator.into(),
                        modulus,
                        target_label: target.into(),
                        replacement: replacement.into(),
                        action,
                        ..RuleSpec::default()
                    };
                    add(&[rule], &[("a", "FoO"), ("b", "Bar"), ("c", "FoO")]);
                }
            }
        }
    }
    // Which of two labels mapped to one name wins: original labels go by name, labels set by rules follow in the order
    // they were first set.
    let map = |regex: &str| RuleSpec {
        regex: regex.into(),
        replacement: "t".into(),
        action: Action::LabelMap,
        ..RuleSpec::default()
    };
    let labels = &[("a", "1"), ("b", "2"), ("c", "3")];
    add(&[map("a|b|c")], labels);
    add(&[replace("(.*)", "b", "set"), map("a|b|c")], labels);
    add(
        &[
            replace("(.*)", "z", "set"),
            replace("(.*)", "b", "set too"),
            map("b|z"),
        ],
        labels,
    );
    add(
        &[
            replace("(.*)", "b", ""),
            replace("(.*)", "b", "again"),
            map("a|b|c"),
        ],
        labels,
    );
    cases
}
