//! Log lines: for people or as JSON, to a terminal or to files.

use std::fs::OpenOptions;
use std::io;

use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::sampling::Sampling;
use super::settings::{LogEncoding, LogLevel, LogSettings};

/// Why log lines cannot be written as asked.
#[derive(Debug, thiserror::Error)]
#[error("service::telemetry::logs::output_paths: failed to open {path}: {source}")]
pub struct LogError {
    path: String,
    source: io::Error,
}

/// Sends the log lines of this process where `settings` says. Only the first call has an effect.
pub fn init(settings: &LogSettings) -> Result<(), LogError> {
    let mut layers = Vec::new();
    for path in &settings.output_paths {
        layers.push(layer(settings, writer(path)?));
    }
    let level = match settings.level {
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Error => LevelFilter::ERROR,
    };
    // An error says that a subscriber stands already, as in tests.
    let _ = tracing_subscriber::registry()
        .with(layers)
        .with(level)
        .try_init();
    if !settings.initial_fields.is_empty() {
        tracing::info!(fields = ?settings.initial_fields, "Fields of this agent");
    }
    Ok(())
}

fn layer<S>(settings: &LogSettings, writer: BoxMakeWriter) -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    let sampling = Sampling::new(settings.sampling.clone());
    let lines = tracing_subscriber::fmt::layer()
        .with_target(false)
        .with_writer(writer);
    match settings.encoding {
        LogEncoding::Console => lines.with_ansi(false).with_filter(sampling).boxed(),
        LogEncoding::Json => lines
            .json()
            .flatten_event(true)
            .with_filter(sampling)
            .boxed(),
    }
}

fn writer(path: &str) -> Result<BoxMakeWriter, LogError> {
    Ok(match path {
        "stderr" => BoxMakeWriter::new(io::stderr),
        "stdout" => BoxMakeWriter::new(io::stdout),
        path => {
            let file = OpenOptions::new().create(true).append(true).open(path);
            let file = file.map_err(|source| LogError {
                path: path.to_owned(),
                source,
            })?;
            BoxMakeWriter::new(std::sync::Mutex::new(file))
        }
    })
}
