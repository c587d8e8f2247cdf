//! `profcol upload`: runs a pipeline from the `padata` receiver to the `parca` exporter until all files are delivered,
//! and reports what is left.

mod progress;
mod reasons;
mod summary;

use std::sync::Arc;

use profcol_component::{SelfTelemetry, Status, StatusBoard};
use profcol_config::Duration;
use profcol_engine::telemetry::init_logs;
use profcol_padata::{Recording, State, survey};
use serde_json::{Value, json};

use self::progress::Progress;
use self::reasons::Reasons;
use super::run::{Session, in_runtime, serve};
use super::{CommandError, load};
use crate::cli::{Configuration, Server, Upload};
use crate::{privileges, sandbox};

/// Log targets that are silenced: `Reasons` reports their failures instead, knowing that files are kept.
const SILENCED_TARGETS: &[&str] = &["profcol_engine::sender", "profcol::commands::run"];

pub fn upload(command: &Upload, configuration: &Configuration) -> Result<(), CommandError> {
    let before = recordings(command)?;
    let Some(server) = command.to.as_ref().filter(|_| !command.dry_run) else {
        return summary::print_contents(&command.directory, &before);
    };
    let own = load::own(&configuration_of(command, server)?);
    let loaded = load::load(&Configuration {
        uris: [&[own], &configuration.uris[..]].concat(),
        sets: configuration.sets.clone(),
        feature_gates: Vec::new(),
    })?;
    let reasons = Arc::new(Reasons::new(&server.address));
    let observer = Arc::clone(&reasons);
    let telemetry = SelfTelemetry {
        board: StatusBoard::observed(move |_, status| {
            if let Status::RecoverableError(reason) = status {
                observer.report(reason);
            }
        }),
        ..SelfTelemetry::default()
    };
    init_logs(
        &loaded.document.service.telemetry.logs,
        SILENCED_TARGETS,
        &telemetry.log,
    )
    .map_err(|error| CommandError::Configuration(error.to_string()))?;
    privileges::keep(loaded.document.capabilities());
    sandbox::enter(&loaded.document);
    let progress = Progress::new(&telemetry.meter, &before);
    let served = in_runtime(async {
        tokio::select! {
            served = serve(&loaded, &telemetry, Session::default()) => served,
            never = progress.show() => match never {},
            never = reasons.repeat(&telemetry.board, &progress) => match never {},
        }
    });
    progress.end();
    let after = recordings(command)?;
    let left = summary::print_left(&progress, &before, &after)?;
    let report = served?;
    match (left, report.failures.first()) {
        (0, None) => Ok(()),
        (0, Some(failure)) => Err(CommandError::Runtime(failure.to_string())),
        // Stopped early. Undelivered data is not lost: its files are kept.
        (left, _) => Err(CommandError::Runtime(format!(
            "{left} files were not uploaded completely"
        ))),
    }
}

fn recordings(command: &Upload) -> Result<Vec<Recording>, CommandError> {
    survey(&command.directory)
        .map_err(|error| CommandError::Runtime(format!("{}: {error}", command.directory.display())))
}

/// The pipeline configuration for the command line.
fn configuration_of(command: &Upload, server: &Server) -> Result<Value, CommandError> {
    let directory = command.directory.to_str().ok_or_else(|| {
        CommandError::Usage(format!(
            "{} is not UTF-8, as paths in a configuration must be",
            command.directory.display()
        ))
    })?;
    if command.insecure && server.is_plaintext == Some(false) {
        return Err(CommandError::Usage(
            "--insecure means plaintext and conflicts with grpcs://; --insecure-skip-verify trusts any certificate"
                .to_owned(),
        ));
    }
    let headers: Vec<Value> = command
        .headers
        .iter()
        .map(|(name, value)| json!({ "name": name, "value": value }))
        .collect();
    let (pause, longest_pause) = (Duration::from_millis(500), Duration::from_millis(5000));
    let give_up_after = match command.give_up_after {
        never if never.is_zero() => longest_pause,
        after => after,
    };
    Ok(json!({
        "receivers": { "padata": {
            "storage_path": directory,
            "follow": false,
            "when_undelivered": "leave",
            "after": if command.keep { "keep" } else { "delete" },
        }},
        "exporters": { "parca": {
            "endpoint": server.address,
            "headers": headers,
            "bearer_token_file": command.bearer_token_file.as_deref().unwrap_or_default(),
            "tls": {
                "insecure": server.is_plaintext.unwrap_or(command.insecure),
                "insecure_skip_verify": command.insecure_skip_verify,
                "ca_file": command.ca_file.as_deref().unwrap_or_default(),
            },
            "retry_on_failure": {
                "initial_interval": pause.min(give_up_after).to_string(),
                "max_interval": longest_pause.min(give_up_after).to_string(),
                "max_elapsed_time": command.give_up_after.to_string(),
            },
        }},
        "service": {
            "telemetry": { "logs": { "level": "warn" }, "metrics": { "level": "none" } },
            "pipelines": { "profiles": { "receivers": ["padata"], "exporters": ["parca"] } },
        },
    }))
}

/// Number of undelivered batches of a file.
fn waiting(recording: &Recording) -> u64 {
    match recording.state {
        State::Waiting {
            batches,
            settled,
            refused,
        } => u64::from(batches.saturating_sub(settled)) + refused as u64,
        State::Delivered | State::InUse | State::Unreadable(_) => 0,
    }
}
