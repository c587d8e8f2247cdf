//! `profcol doctor`: checks the requirements of a configuration, and says how to meet them.
//!
//! Each component checks its own requirements; this command runs all checks concurrently.

use std::process::ExitCode;
use std::time::Duration;

use profcol_component::{Check, SelfTelemetry, Severity};
use profcol_engine::ComponentChecks;
use profcol_engine::telemetry::check_metrics;
use profcol_printable::line;
use serde_json::{Value, json};

use super::built_in::BuiltIn;
use super::print::{print_text, print_value};
use super::run::in_runtime;
use super::{CommandError, load};
use crate::cli::{Configuration, Doctor, Format};
use crate::{privileges, sandbox};

/// For all checks of one component. Network checks time out after four seconds; the rest is local work on a host that
/// may be busy.
const LIMIT: Duration = Duration::from_secs(20);

/// Fits the names of most checks.
const NAME_WIDTH: usize = 22;

pub fn doctor(doctor: Doctor, configuration: &Configuration) -> Result<ExitCode, CommandError> {
    let configuration = match configuration.uris.is_empty() {
        true => &BuiltIn::for_profiling().configuration(configuration),
        false => configuration,
    };
    let loaded = load::load(configuration)?;
    let graph = load::build(&loaded.document, &SelfTelemetry::default())?;
    // Check with the capabilities the service would have.
    privileges::keep(loaded.document.capabilities());
    let telemetry = &loaded.document.service.telemetry;
    let found = in_runtime(async {
        let metrics = ComponentChecks {
            component: "service::telemetry::metrics".to_owned(),
            checks: check_metrics(telemetry).await,
        };
        let mut found = graph.check(LIMIT).await;
        found.push(metrics);
        found.push(ComponentChecks {
            component: "service::sandbox".to_owned(),
            checks: sandbox::check(&loaded.document),
        });
        Ok(found)
    })?;
    match doctor.json {
        true => print_value(&as_json(&found), Format::Json)?,
        false => print_text(&as_text(&found))?,
    }
    Ok(match counts(&found).failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    ok: usize,
    warnings: usize,
    failed: usize,
}

fn counts(found: &[ComponentChecks]) -> Counts {
    let mut counts = Counts::default();
    for check in found.iter().flat_map(|it| &it.checks) {
        match check.severity() {
            None => counts.ok += 1,
            Some(Severity::Warning) => counts.warnings += 1,
            Some(Severity::Failure) => counts.failed += 1,
        }
    }
    counts
}

fn status(check: &Check) -> &'static str {
    match check.severity() {
        None => "ok",
        Some(Severity::Warning) => "warn",
        Some(Severity::Failure) => "fail",
    }
}

fn as_json(found: &[ComponentChecks]) -> Value {
    let object = |component: &str, check: &Check| {
        let problem = check.problem.as_ref();
        json!({
            "component": component,
            "check": check.name,
            "status": status(check),
            "found": check.found,
            "consequence": problem.map(|it| &it.consequence),
            "fix": problem.map(|it| &it.fix),
        })
    };
    let objects = found.iter().flat_map(|of| {
        let checks = of.checks.iter();
        checks.map(move |check| object(&of.component, check))
    });
    Value::Array(objects.collect())
}

fn as_text(found: &[ComponentChecks]) -> String {
    let mut text = String::new();
    // Components without checks have no requirements.
    for of in found.iter().filter(|of| !of.checks.is_empty()) {
        text += &format!("{}\n", line(&of.component));
        for check in &of.checks {
            let (name, found) = (line(&check.name), line(&check.found));
            text += &format!("  {:<5} {name:<NAME_WIDTH$} {found}\n", status(check));
            if let Some(problem) = &check.problem {
                let (consequence, fix) = (line(&problem.consequence), line(&problem.fix));
                text += &format!("        {consequence}\n        fix: {fix}\n");
            }
        }
        text.push('\n');
    }
    let Counts {
        ok,
        warnings,
        failed,
    } = counts(found);
    text + &format!("{ok} ok, {warnings} warn, {failed} fail\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> Vec<ComponentChecks> {
        vec![
            ComponentChecks {
                component: "receiver nop".to_owned(),
                checks: Vec::new(),
            },
            ComponentChecks {
                component: "exporter file".to_owned(),
                checks: vec![
                    Check::new("directory", "/x\u{1b}[2J is writable"),
                    Check::new("disk_space", "3 MiB").warn("it is full soon", "free some"),
                    Check::new("handshake", "refused").fail("nothing arrives", "start it"),
                ],
            },
        ]
    }

    #[test]
    fn each_check_is_a_line_and_each_problem_has_its_fix() {
        let expected = "\
exporter file
  ok    directory              /x\\x1b[2J is writable
  warn  disk_space             3 MiB
        it is full soon
        fix: free some
  fail  handshake              refused
        nothing arrives
        fix: start it

1 ok, 1 warn, 1 fail
";
        assert_eq!(as_text(&found()), expected);
    }

    #[test]
    fn json_has_the_same_keys_in_every_object() {
        let json = as_json(&found());
        let objects = json.as_array().unwrap();
        assert_eq!(objects.len(), 3);
        for object in objects {
            let keys: Vec<_> = object.as_object().unwrap().keys().collect();
            assert_eq!(
                keys,
                [
                    "check",
                    "component",
                    "consequence",
                    "fix",
                    "found",
                    "status"
                ]
            );
        }
        assert_eq!(objects[0]["fix"], Value::Null);
        assert_eq!(objects[2]["status"], "fail");
        assert_eq!(objects[2]["fix"], "start it");
    }
}
