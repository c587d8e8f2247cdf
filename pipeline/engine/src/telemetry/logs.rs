//! Log lines: for people or as JSON, to a terminal or to files.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs::OpenOptions;
use std::io;

use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, format};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
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

/// Adds the same fields to every line that `inner` makes.
struct WithFields<F> {
    inner: F,
    encoding: LogEncoding,
    fields: String,
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
    Ok(())
}

fn layer<S>(settings: &LogSettings, writer: BoxMakeWriter) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let sampling = Sampling::new(settings.sampling.clone());
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .with_ansi(false);
    let line = format().with_target(false);
    let (encoding, fields) = (settings.encoding, &settings.initial_fields);
    match encoding {
        LogEncoding::Console => lines
            .event_format(WithFields::new(line, encoding, fields))
            .with_filter(sampling)
            .boxed(),
        LogEncoding::Json => lines
            .fmt_fields(JsonFields::new())
            .event_format(WithFields::new(
                line.json().flatten_event(true),
                encoding,
                fields,
            ))
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

// === impl WithFields ===

impl<F> WithFields<F> {
    fn new(inner: F, encoding: LogEncoding, fields: &BTreeMap<String, String>) -> Self {
        let mut text = String::new();
        for (key, value) in fields {
            // Writing to a string cannot fail.
            let _ = match encoding {
                LogEncoding::Console => write!(text, " {key}={value:?}"),
                LogEncoding::Json => {
                    let (key, value) = (serde_json::json!(key), serde_json::json!(value));
                    write!(text, "{key}:{value},")
                }
            };
        }
        Self {
            inner,
            encoding,
            fields: text,
        }
    }

    /// A line ends with a line break; a JSON line begins with a brace.
    fn joined(&self, line: &str) -> String {
        let fields = &self.fields;
        match self.encoding {
            LogEncoding::Console => format!("{}{fields}\n", line.trim_end_matches('\n')),
            LogEncoding::Json => match line.strip_prefix('{') {
                Some(rest) => format!("{{{fields}{rest}"),
                None => line.to_owned(),
            },
        }
    }
}

impl<S, N, F> FormatEvent<S, N> for WithFields<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if self.fields.is_empty() {
            return self.inner.format_event(context, writer, event);
        }
        let mut line = String::new();
        self.inner
            .format_event(context, Writer::new(&mut line), event)?;
        writer.write_str(&self.joined(&line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(encoding: LogEncoding, path: &std::path::Path) -> String {
        let settings = LogSettings {
            encoding,
            output_paths: vec![path.display().to_string()],
            initial_fields: BTreeMap::from([("node".to_owned(), "a \"b\"".to_owned())]),
            ..LogSettings::default()
        };
        let layer = layer(&settings, writer(&settings.output_paths[0]).unwrap());
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(samples = 3, "Sent.");
            tracing::warn!("Slow.");
        });
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn initial_fields_stand_on_every_line() {
        let folder = tempfile::tempdir().unwrap();
        let text = lines(LogEncoding::Console, &folder.path().join("console"));
        let ends: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split_once("Z "))
            .map(|(_, line)| line.trim())
            .collect();
        assert_eq!(
            ends,
            [
                r#"INFO Sent. samples=3 node="a \"b\"""#,
                r#"WARN Slow. node="a \"b\"""#
            ]
        );

        let text = lines(LogEncoding::Json, &folder.path().join("json"));
        let read: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(read.len(), 2);
        assert!(read.iter().all(|line| line["node"] == "a \"b\""), "{text}");
        assert_eq!(
            (&read[0]["message"], &read[0]["samples"]),
            (&"Sent.".into(), &3.into())
        );
    }
}
