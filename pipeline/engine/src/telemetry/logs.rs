//! Log output: console or JSON, to a terminal or files.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use profcol_component::{RecentLog, files};
use profcol_printable::{Style, Writer as Escaping};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::filter::{LevelFilter, Targets, dynamic_filter_fn};
use tracing_subscriber::fmt::format::{JsonFields, Writer};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, format};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use super::sampling::Sampling;
use super::settings::{LogEncoding, LogLevel, LogSettings};

/// Why log outputs could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("service::telemetry::logs::output_paths: failed to open {path}: {source}")]
pub struct LogError {
    path: String,
    source: io::Error,
}

/// Formats message and fields of a console line, escaping untrusted text.
///
/// Messages may be multi-line, with all but the first line indented; a field is one line.
struct ConsoleFields;

struct ConsoleVisitor<'a> {
    writer: Writer<'a>,
    is_first: bool,
    result: fmt::Result,
}

/// Adds fixed fields to every line of `inner`.
struct WithFields<F> {
    inner: F,
    encoding: LogEncoding,
    fields: String,
}

/// Libraries whose errors the components log, with what to do: their other events are for debugging.
const CHATTY: &[&str] = &["krafka"];

/// Installs the global logger with the outputs of `settings`, without the modules in `silent`, whose events a command
/// reports itself. `recent` gets the lines too while enabled. Only the first call has an effect.
pub fn init(settings: &LogSettings, silent: &[&str], recent: &RecentLog) -> Result<(), LogError> {
    let mut layers = Vec::new();
    for path in &settings.output_paths {
        layers.push(layer(settings, writer(path)?));
    }
    layers.push(recent_layer(settings, recent));
    let level = match settings.level {
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Error => LevelFilter::ERROR,
    };
    let silent = silent.iter().map(|module| (*module, LevelFilter::OFF));
    let chatty = match settings.level {
        LogLevel::Debug => level,
        _ => LevelFilter::ERROR,
    };
    let chatty = CHATTY.iter().map(|library| (*library, chatty));
    let filter = Targets::new()
        .with_default(level)
        .with_targets(chatty)
        .with_targets(silent);
    // Fails if a subscriber is already installed, as in tests.
    let _ = tracing_subscriber::registry()
        .with(layers)
        .with(filter)
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
            .fmt_fields(ConsoleFields)
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

/// Console format, whatever the other outputs use.
fn recent_layer<S>(settings: &LogSettings, recent: &RecentLog) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let (lines, wanted) = (recent.clone(), recent.clone());
    tracing_subscriber::fmt::layer()
        .with_writer(move || lines.clone())
        .with_ansi(false)
        .fmt_fields(ConsoleFields)
        .event_format(format().with_target(false))
        .with_filter(Sampling::new(settings.sampling.clone()))
        .with_filter(dynamic_filter_fn(move |_, _| wanted.is_wanted()))
        .boxed()
}

fn writer(path: &str) -> Result<BoxMakeWriter, LogError> {
    Ok(match path {
        "stderr" => BoxMakeWriter::new(io::stderr),
        "stdout" => BoxMakeWriter::new(io::stdout),
        path => {
            let file = LogFile::open(path).map_err(|source| LogError {
                path: path.to_owned(),
                source,
            })?;
            BoxMakeWriter::new(std::sync::Mutex::new(file))
        }
    })
}

// === impl ConsoleFields, ConsoleVisitor ===

impl<'writer> FormatFields<'writer> for ConsoleFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut visitor = ConsoleVisitor {
            writer,
            is_first: true,
            result: Ok(()),
        };
        fields.record(&mut visitor);
        visitor.result
    }
}

impl ConsoleVisitor<'_> {
    fn write(&mut self, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
        if !std::mem::take(&mut self.is_first) {
            self.writer.write_char(' ')?;
        }
        let style = match field.name() {
            "message" => Style::Indented,
            name => {
                write!(self.writer, "{name}=")?;
                Style::Line
            }
        };
        write!(Escaping::new(&mut self.writer, style), "{value:?}")
    }
}

impl Visit for ConsoleVisitor<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if self.result.is_ok() {
            self.result = self.write(field, value);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.record_debug(field, &format_args!("{value}")),
            _ => self.record_debug(field, &value),
        }
    }
}

/// A log file that may be moved or removed, as by `logrotate`.
struct LogFile {
    path: PathBuf,
    file: File,
}

impl LogFile {
    fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let file = files::options().create(true).append(true).open(&path)?;
        Ok(Self { path, file })
    }

    /// If this cannot be determined, keeps the open file.
    fn is_at_its_path(&self) -> bool {
        match (fs::metadata(&self.path), self.file.metadata()) {
            (Ok(found), Ok(file)) => (found.dev(), found.ino()) == (file.dev(), file.ino()),
            (Err(error), _) => error.kind() != io::ErrorKind::NotFound,
            (Ok(_), Err(_)) => true,
        }
    }
}

impl io::Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !self.is_at_its_path()
            && let Ok(opened) = Self::open(&self.path)
        {
            *self = opened;
        }
        self.file.write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

// === impl WithFields ===

impl<F> WithFields<F> {
    fn new(inner: F, encoding: LogEncoding, fields: &BTreeMap<String, String>) -> Self {
        let mut text = String::new();
        for (key, value) in fields {
            // Writing to a string cannot fail.
            let _ = match encoding {
                LogEncoding::Console => {
                    write!(Escaping::new(&mut text, Style::Line), " {key}={value:?}")
                }
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

    /// Lines end with a line break; JSON lines start with a brace.
    fn joined(&self, line: String) -> String {
        let fields = &self.fields;
        match (self.encoding, line.strip_prefix('{')) {
            _ if fields.is_empty() => line,
            (LogEncoding::Console, _) => format!("{}{fields}\n", line.trim_end_matches('\n')),
            (LogEncoding::Json, Some(rest)) => format!("{{{fields}{rest}"),
            (LogEncoding::Json, None) => line,
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
        let mut line = String::new();
        self.inner
            .format_event(context, Writer::new(&mut line), event)?;
        let line = self.joined(line);
        match self.encoding {
            LogEncoding::Console => writer.write_str(&line),
            LogEncoding::Json => writer.write_str(&profcol_printable::json(&line)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of `log`.
    fn written(
        encoding: LogEncoding,
        initial_fields: &[(&str, &str)],
        log: impl FnOnce(),
    ) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let fields = initial_fields.iter();
        let settings = LogSettings {
            encoding,
            output_paths: vec![path.display().to_string()],
            initial_fields: fields
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            ..LogSettings::default()
        };
        let layer = layer(&settings, writer(&settings.output_paths[0]).unwrap());
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, log);
        fs::read_to_string(path).unwrap()
    }

    fn lines(encoding: LogEncoding) -> String {
        written(encoding, &[("node", "a \"b\"")], || {
            tracing::info!(samples = 3, "Sent.");
            tracing::warn!("Slow.");
        })
    }

    /// Console lines without timestamps.
    fn without_times(text: &str) -> Vec<&str> {
        let line = |line| match str::split_once(line, "Z ") {
            Some((_, line)) => line.trim_start(),
            None => line,
        };
        text.lines().map(line).collect()
    }

    const EVIL: &str = "refused\n2026-11-22T00:00:00.000000Z  INFO forged\r\x1b[2J\u{202e}\u{9b}";

    #[test]
    fn reopens_a_moved_file() {
        use std::io::Write;

        let folder = tempfile::tempdir().unwrap();
        let [path, moved] = ["log", "log.1"].map(|name| folder.path().join(name));
        let mut file = LogFile::open(&path).unwrap();
        file.write_all(b"one\n").unwrap();
        fs::rename(&path, &moved).unwrap();
        file.write_all(b"two\n").unwrap();
        fs::remove_file(&path).unwrap();
        file.write_all(b"three\n").unwrap();
        assert_eq!(fs::read_to_string(&moved).unwrap(), "one\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "three\n");
    }

    #[test]
    fn initial_fields_are_on_every_line() {
        let text = lines(LogEncoding::Console);
        assert_eq!(
            without_times(&text),
            [
                r#"INFO Sent. samples=3 node="a \"b\"""#,
                r#"WARN Slow. node="a \"b\"""#
            ]
        );

        let text = lines(LogEncoding::Json);
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

    #[test]
    fn escapes_untrusted_text_in_log_lines() {
        let error = io::Error::other(EVIL);
        let log = || {
            tracing::error!(error = %error, name = EVIL, debug = ?error, "Failed.");
            tracing::warn!("{EVIL}");
        };
        let text = written(LogEncoding::Console, &[("no\nde", EVIL)], log);
        let escaped = r"refused\n2026-11-22T00:00:00.000000Z  INFO forged\r\x1b[2J\u{202e}\u{9b}";
        let quoted = escaped.replace(r"\x1b", r"\u{1b}");
        assert_eq!(
            without_times(&text),
            [
                &*format!(
                    r#"ERROR Failed. error={escaped} name="{quoted}" debug=Custom {{ kind: Other, error: "{quoted}" }} no\nde="{quoted}""#
                ),
                "WARN refused",
                &*format!(r#"INFO forged\r\x1b[2J\u{{202e}}\u{{9b}} no\nde="{quoted}""#),
            ]
        );
        // Continuation lines are distinguished from entries by their indent.
        assert_eq!(text.lines().nth(2).unwrap().find("2026"), Some(1));
        assert!(text.lines().nth(2).unwrap().starts_with('\t'), "{text}");
    }

    #[test]
    fn json_lines_escape_untrusted_text() {
        let text = written(LogEncoding::Json, &[("node", EVIL)], || {
            tracing::error!(error = %EVIL, "{EVIL}");
        });
        assert!(
            text.trim_end().chars().all(profcol_printable::is_printable),
            "{text:?}"
        );
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        for key in ["message", "error", "node"] {
            assert_eq!(line[key], EVIL, "{text}");
        }
    }
}
