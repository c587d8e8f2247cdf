//! What each verbosity writes to a file and to the log, which batches are shown, and `/dev/full` as a full disk.

use std::fs;
use std::io;
use std::time::Duration;

use parking_lot::Mutex;
use profcol_component::testkit::{batch, context, profiles};
use profcol_profile::KeyValue;

use super::*;
use profcol_component::testkit::load;

/// A debug exporter that writes plain text to a file.
struct Written {
    exporter: Debug,
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl Written {
    async fn with(options: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.txt");
        let options = format!(
            "{{use_internal_logger: false, output_paths: [{}], {options}}}",
            path.display()
        );
        let exporter = Debug::new(&load(&options).unwrap(), &context("debug"));
        exporter.start().await.unwrap();
        Self {
            exporter,
            path,
            _directory: directory,
        }
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.path).unwrap()
    }
}

#[tokio::test]
async fn basic_is_one_line_with_both_counts() {
    let written = Written::with("verbosity: basic").await;
    written.exporter.export(&batch(3)).await.unwrap();
    assert_eq!(
        written.text(),
        "Profiles\t{\"resource profiles\": 1, \"sample records\": 3}\n"
    );
}

#[tokio::test]
async fn normal_adds_a_line_per_profile() {
    let written = Written::with("verbosity: normal").await;
    let mut batch = batch(3);
    batch.profiles.update_resources(|resource| {
        resource
            .attributes
            .push(KeyValue::new("service.name", "shop"));
        true
    });
    written.exporter.export(&batch).await.unwrap();
    let text = written.text();
    let lines: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(
        lines,
        [
            "ResourceProfiles #0 service.name=shop",
            "ScopeProfiles #0 test",
            "samples/count samples=3"
        ]
    );
}

#[tokio::test]
async fn detailed_resolves_tables_types_and_frames() {
    let written = Written::with("verbosity: Detailed").await;
    written.exporter.export(&batch(2)).await.unwrap();
    let text = written.text();
    let position = |part: &str| {
        text.find(part)
            .unwrap_or_else(|| panic!("no {part:?} in {text}"))
    };
    let parts = [
        "Location #1\n",
        "    Address: 0x1000\n",
        "Function #2\n    Name: function_1\n",
        "Stack #1\n    Location indices: [1]\n",
        "String table:\n    samples\n",
        "ResourceProfiles #0\n",
        "    Start time     : 2023-11-14T22:13:20Z\n",
        "    Sample type    : samples/count\n",
        "    Sample #0\n        Values: [1]\n        Stack:\n             -> function_0 :1 \n",
        "    Sample #1\n",
    ];
    let positions: Vec<usize> = parts.into_iter().map(position).collect();
    assert!(positions.is_sorted(), "{text}");
}

#[tokio::test]
async fn control_characters_are_escaped() {
    for verbosity in ["normal", "detailed"] {
        let written = Written::with(&format!("verbosity: {verbosity}")).await;
        let mut batch = batch(1);
        batch.profiles.update_resources(|resource| {
            let key = "k\ney";
            let attribute = KeyValue::new(key, "e\x1b[2Jvil\n\u{202e}");
            resource.attributes.push(attribute);
            true
        });
        written.exporter.export(&batch).await.unwrap();
        let text = written.text();
        let escaped = match verbosity {
            "normal" => r" k\ney=e\x1b[2Jvil\n\u{202e}",
            _ => r"     -> k\ney: Str(e\x1b[2Jvil\n\u{202e})",
        };
        assert!(text.contains(&format!("{escaped}\n")), "{text}");
        assert_eq!(text, profcol_printable::lines(&text));
    }
}

#[test]
fn escaped_text_is_truncated_at_the_limit_too() {
    let text = text::Text::filled_by(9, |out| {
        use std::fmt::Write;
        out.write_str("ab")?;
        out.write_str(&"\x1b".repeat(100))
    });
    assert!(text.starts_with("ab\\x1b\\x1\n... truncated"), "{text}");
}

#[test]
fn text_is_truncated_between_characters() {
    use std::fmt::Write;
    let text = text::Text::filled_by(5, |out| {
        out.write_str("abcä")?;
        out.write_str("öü")
    });
    assert_eq!(text, "abcä\n... truncated");
    assert_eq!(
        detailed::detailed(profiles(20_000).model()).lines().last(),
        text.lines().last()
    );
}

#[test]
fn shows_the_first_batches_of_a_second_and_then_every_nth() {
    let check = |(initial, thereafter), expected: &str| {
        let sampling = Sampling::new(initial, thereafter);
        let now = Instant::now();
        let admitted = |_| if sampling.admits(now) { '+' } else { '-' };
        assert_eq!((0..8).map(admitted).collect::<String>(), expected);
        assert_eq!(
            sampling.admits(now + Duration::from_secs(1)),
            initial > 0 || thereafter == 1
        );
    };
    check((2, 1), "++++++++");
    check((2, 3), "++--+--+");
    check((2, 0), "++------");
    check((0, 2), "-+-+-+-+");
    check((0, 0), "--------");
}

#[tokio::test]
async fn batches_that_are_not_shown_count_as_delivered() {
    let written = Written::with("sampling_initial: 1, sampling_thereafter: 0").await;
    for _ in 0..3 {
        written.exporter.export(&batch(1)).await.unwrap();
    }
    assert_eq!(written.text().lines().count(), 1);
}

#[tokio::test]
async fn a_full_disk_is_a_retryable_refusal() {
    let options = load("{use_internal_logger: false, output_paths: [/dev/full]}").unwrap();
    let exporter = Debug::new(&options, &context("debug"));
    exporter.start().await.unwrap();
    let refusal = exporter.export(&batch(1)).await.unwrap_err();
    assert!(refusal.is_retryable(), "{refusal}");
    assert!(
        refusal
            .to_string()
            .starts_with("failed to write to /dev/full: "),
        "{refusal}"
    );
}

#[tokio::test]
async fn startup_fails_if_a_file_cannot_be_opened() {
    let options = load("{use_internal_logger: false, output_paths: [/nonexistent/out]}").unwrap();
    let error = Debug::new(&options, &context("debug"))
        .start()
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("failed to open the output file /nonexistent/out: "),
        "{error}"
    );
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn writes_to_the_log_with_the_collectors_fields() {
    let log = Log::default();
    let sink = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_writer(move || sink.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let exporter = Debug::new(&load("verbosity: normal").unwrap(), &context("debug/here"));
    exporter.start().await.unwrap();
    exporter.export(&batch(3)).await.unwrap();
    let text = String::from_utf8(log.0.lock().clone()).unwrap();
    let mut lines = text.lines();
    let line = lines.next().unwrap();
    for part in [
        "\"message\":\"Profiles\"",
        "\"resource profiles\":1",
        "\"sample records\":3",
        "\"otelcol.component.id\":\"debug/here\"",
        "\"otelcol.component.kind\":\"exporter\"",
    ] {
        assert!(line.contains(part), "no {part} in {line}");
    }
    assert!(lines.next().unwrap().contains("ScopeProfiles #0 test"));
}

#[test]
fn has_the_collectors_defaults() {
    let config = load::<DebugConfig>("").unwrap();
    assert_eq!(
        serde_json::to_value(config).unwrap(),
        serde_json::json!({
            "sampling_initial": 2,
            "sampling_thereafter": 1,
            "use_internal_logger": true,
            "output_paths": [],
            "sending_queue": null,
        })
    );
    let loud = load::<DebugConfig>("verbosity: DETAILED").unwrap();
    assert_eq!(serde_json::to_value(loud).unwrap()["verbosity"], "Detailed");
}

#[test]
fn has_a_queue_only_if_configured() {
    let check = |options: &str, expected: Option<i64>| {
        let delivery = load::<DebugConfig>(options).unwrap().delivery();
        assert_eq!(
            delivery.queue.map(|queue| queue.queue_size),
            expected,
            "{options}"
        );
    };
    check("", None);
    check("sending_queue:", Some(1000));
    check("sending_queue: {queue_size: 7}", Some(7));
    check("sending_queue: {enabled: false}", None);
}

#[test]
fn validates_the_options() {
    let check = |options: &str, expected: &str| {
        assert_eq!(load::<DebugConfig>(options).unwrap_err(), expected);
    };
    check(
        "verbosity: loud",
        "verbosity: unknown metrics level \"loud\"",
    );
    check(
        "output_paths: [stdout]",
        "output_paths: has an effect only with `use_internal_logger: false`; set that or remove this key",
    );
    check(
        "{use_internal_logger: false, output_paths: ['']}",
        "output_paths: must not contain an empty path",
    );
    check(
        "sending_queue: {queue_size: 0}",
        "sending_queue::queue_size: `queue_size` must be positive",
    );
}
