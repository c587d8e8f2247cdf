//! Compares relabel rules with Prometheus' own package: same labels, same drops, same errors. The package runs in
//! `prometheus/`, which needs Go.

mod table;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use profcol_labels::{LabelRows, Rule, RuleSpec};
use profcol_test_skip::skip;
use serde::Deserialize;
use serde_json::{Value, json};

type Set = BTreeMap<String, String>;

struct Case {
    rules: Vec<RuleSpec>,
    labels: Set,
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
struct Outcome {
    error: String,
    keep: bool,
    labels: Option<Set>,
}

#[test]
fn matches_prometheus_on_fixed_cases() {
    compare(&table::cases());
}

#[test]
fn matches_prometheus_on_random_cases() {
    let mut random = Random(1);
    let cases: Vec<Case> = (0..5000).map(|_| random.case()).collect();
    compare(&cases);
}

fn compare(cases: &[Case]) {
    let Some(expected) = oracle(cases) else {
        return;
    };
    assert_eq!(expected.len(), cases.len());
    for (case, expected) in cases.iter().zip(expected) {
        let actual = outcome(case);
        // Regex errors are worded differently by the two libraries.
        let both_refuse_regex = [&actual, &expected]
            .iter()
            .all(|it| it.error.starts_with("error parsing regexp: "));
        let is_same = both_refuse_regex || actual == expected;
        assert!(
            is_same,
            "{:#?}\n{:?}\nprometheus: {expected:?}\nprofcol: {actual:?}",
            case.rules, case.labels
        );
    }
}

fn outcome(case: &Case) -> Outcome {
    let rules: Result<Vec<Rule>, _> = case.rules.iter().map(Rule::new).collect();
    let rules = match rules {
        Ok(rules) => rules,
        Err(error) => {
            return Outcome {
                error: error.to_string(),
                keep: false,
                labels: None,
            };
        }
    };
    let rows = LabelRows::of_labels(case.labels.iter().map(|(name, text)| (&**name, &**text)));
    let mut labels = rows.labels();
    let keep = rules.iter().all(|rule| rule.apply(&mut labels));
    let left = match keep {
        true => labels.sorted(),
        false => Vec::new(),
    };
    let owned = |(name, text): (&str, &str)| (name.to_owned(), text.to_owned());
    Outcome {
        error: String::new(),
        keep,
        labels: Some(left.into_iter().map(owned).collect()),
    }
}

/// Prometheus' results; `None` without Go.
fn oracle(cases: &[Case]) -> Option<Vec<Outcome>> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/prometheus");
    let go = Command::new("go").arg("version").output();
    if !go.is_ok_and(|go| go.status.success()) {
        skip("Go is not installed, cannot run Prometheus' relabel package");
        return None;
    }
    let mut child = Command::new("go")
        .args(["run", "."])
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Go is installed");
    let mut input = child.stdin.take().expect("stdin is piped");
    let text = Value::from_iter(cases.iter().map(Case::json)).to_string();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().expect("the oracle runs");
    let written = writer.join().expect("does not panic");
    assert!(
        output.status.success() && written.is_ok(),
        "the oracle failed"
    );
    Some(serde_json::from_slice(&output.stdout).expect("the oracle writes JSON"))
}

impl Case {
    fn json(&self) -> Value {
        let rule = |rule: &RuleSpec| {
            json!({
                "source_labels": rule.source_labels,
                "separator": rule.separator,
                "regex": rule.regex,
                "modulus": rule.modulus,
                "target_label": rule.target_label,
                "replacement": rule.replacement,
                "action": rule.action.name(),
            })
        };
        json!({
            "rules": self.rules.iter().map(rule).collect::<Value>(),
            "labels": self.labels,
        })
    }
}

/// Deterministic pseudorandom numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }

    fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }

    fn case(&mut self) -> Case {
        let rules = 1 + self.below(6);
        let labels = self.below(8);
        Case {
            rules: (0..rules).map(|_| self.rule()).collect(),
            labels: (0..labels)
                .map(|_| {
                    (
                        self.pick(table::NAMES).into(),
                        self.pick(table::VALUES).into(),
                    )
                })
                .collect(),
        }
    }

    fn rule(&mut self) -> RuleSpec {
        let action = self.pick(table::ACTIONS);
        let mut spec = RuleSpec {
            action,
            ..RuleSpec::default()
        };
        let is_about_names = action.name().starts_with("label");
        if !is_about_names {
            let sources = self.below(3);
            spec.source_labels = (0..sources)
                .map(|_| self.pick(table::NAMES).into())
                .collect();
            spec.target_label = self.pick(table::TARGETS).into();
        }
        if !action.name().ends_with("equal") {
            spec.regex = self.pick(table::REGEXES).into();
        }
        match action.name() {
            "replace" | "labelmap" => spec.replacement = self.pick(table::REPLACEMENTS).into(),
            "hashmod" => spec.modulus = self.below(100) as u64,
            _ => {}
        }
        spec
    }
}
