//! Tables of handmade stacks, with symbols that arrive late, and when they are printed, on the paused clock.

use std::sync::Arc;

use profcol_component::testkit::{FakeSymbolizer, load};
use profcol_profile::{
    Function, Interner, KeyValue, Line, Location, LocationIdx, LocationRef, Mapping, MappingRef,
    Model, Profile, Profiles, Resource, ResourceProfiles, SampleRef, Samples, ScopeProfiles,
    ValueType,
};

use super::*;

/// Samples at 10 ms: process, PID, stack (leaf first, a frame without symbol is its file), count.
type SampleSpec<'a> = (&'a str, i64, &'a [&'a str], usize);

fn model(specs: &[SampleSpec<'_>]) -> Model {
    let mut rows = Interner::new();
    let mut value_type = |kind, unit| ValueType {
        kind: rows.string(kind),
        unit: rows.string(unit),
    };
    let (counted, clock) = (
        value_type("samples", "count"),
        value_type("cpu", "nanoseconds"),
    );
    let resources = specs.iter().map(|(process, pid, frames, times)| {
        let frames: Vec<_> = frames
            .iter()
            .map(|frame| location(&mut rows, frame))
            .collect();
        let mut samples = Samples::default();
        let timestamps: Vec<u64> = (0..*times as u64).collect();
        samples.push(SampleRef {
            stack: rows.stack(&frames),
            timestamps: &timestamps,
            ..SampleRef::default()
        });
        let profile = Profile {
            sample_type: Some(counted),
            period_type: Some(clock),
            period: 10_000_000,
            time_unix_nano: 1_000_000_000_000,
            duration_nano: 1_000_000_000,
            samples,
            ..Profile::default()
        };
        let attributes = vec![
            KeyValue::new("process.executable.name", *process),
            KeyValue::new("process.pid", *pid),
            KeyValue::new("systemd.unit", "x.service"),
        ];
        ResourceProfiles {
            resource: Some(Arc::new(Resource {
                attributes,
                ..Resource::default()
            })),
            scopes: vec![ScopeProfiles {
                profiles: vec![Arc::new(profile)],
                ..ScopeProfiles::default()
            }],
            ..ResourceProfiles::default()
        }
    });
    let resources = resources.collect();
    Model {
        dictionary: Arc::new(rows.finish()),
        resources,
    }
}

/// A path is a file without symbols; `function@path` has a source file and no binary.
fn location(rows: &mut Interner, frame: &str) -> LocationIdx {
    if let Some((function, path)) = frame.split_once('@') {
        let (name, filename) = (rows.string(function), rows.string(path));
        let function = rows.function(Function {
            name,
            filename,
            ..Function::default()
        });
        let line = Line {
            function,
            ..Line::default()
        };
        return rows.location(LocationRef {
            lines: &[line],
            ..LocationRef::default()
        });
    }
    let is_named = !frame.starts_with('/');
    let (frame, address) = frame.split_once('+').unwrap_or((frame, "16"));
    let address = address.parse().unwrap();
    let filename = rows.string(if is_named { "/usr/bin/app" } else { frame });
    let mapping = rows.mapping(MappingRef {
        mapping: Mapping {
            filename,
            ..Mapping::default()
        },
        ..MappingRef::default()
    });
    let name = rows.string(frame);
    let function = rows.function(Function {
        name,
        ..Function::default()
    });
    let line = Line {
        function,
        ..Line::default()
    };
    rows.location(LocationRef {
        location: Location { mapping, address },
        lines: if is_named {
            std::slice::from_ref(&line)
        } else {
            &[]
        },
        ..LocationRef::default()
    })
}

fn batch(specs: &[SampleSpec<'_>]) -> Batch {
    Batch::new(Profiles::from_model(model(specs)))
}

/// An exporter that prints nowhere.
fn mute(options: &str) -> Top {
    Top::new(&load(options).unwrap(), Screen::new(std::io::sink(), false))
}

async fn shown(options: &str, specs: &[SampleSpec<'_>]) -> Option<String> {
    let top = mute(options);
    top.export(&batch(specs)).await.unwrap();
    top.render()
}

#[tokio::test]
async fn prints_the_hottest_functions() {
    let specs: &[SampleSpec<'_>] = &[
        ("web", 7, &["parse", "serve", "serve", "main"], 60),
        ("web", 8, &["write", "serve", "main"], 25),
        ("db", 9, &["/usr/lib/libdb.so", "main"], 10),
        ("tool", 10, &["work@/srv/app/tool.py"], 5),
    ];
    let expected = "
── 1 s: 100 samples, 1.00 s of CPU time = 1.00 CPUs
  self   total  function
 60.0%   60.0%  parse  [app]
 25.0%   25.0%  write  [app]
 10.0%   10.0%  (no symbol)  [libdb.so]
        total  process
        85.0%  web (2 processes)  [x.service]
        10.0%  db (pid 9)  [x.service]
         5.0%  tool (pid 10)  [x.service]
";
    assert_eq!(shown("functions: 3", specs).await.unwrap(), expected);
    let all = shown("{functions: 9, processes: 0}", specs).await.unwrap();
    assert!(
        all.contains("work  [tool.py]") && !all.contains("process"),
        "{all}"
    );
}

#[tokio::test]
async fn control_characters_are_escaped() {
    let specs: &[SampleSpec<'_>] = &[
        ("p\n\u{9b}2J", 1, &["/tmp/e\x1b[2Jvil\n", "main"], 2),
        ("q\u{202e}", 2, &["f\r\x1b]0;title\x07"], 1),
    ];
    let expected = r"
── 1 s: 3 samples, 0.03 s of CPU time = 0.03 CPUs
  self   total  function
 66.7%   66.7%  (no symbol)  [e\x1b[2Jvil\n]
 33.3%   33.3%  f\r\x1b]0;title\x07  [app]
        total  process
        66.7%  p\n\u{9b}2J (pid 1)  [x.service]
        33.3%  q\u{202e} (pid 2)  [x.service]
";
    assert_eq!(shown("{}", specs).await.unwrap(), expected);
}

#[tokio::test]
async fn shows_deferred_symbols_available_by_then() {
    let specs: &[SampleSpec<'_>] = &[
        ("db", 9, &["/lib/db.so+1", "/lib/db.so+2", "main"], 60),
        ("tool", 9, &["/bin/stripped", "main"], 40),
    ];
    let pending = "
 60.0%   60.0%  naming...  [db.so]
 40.0%   40.0%  naming...  [stripped]
";
    // A function that is in a stack twice counts once per sample.
    let named = "
 60.0%   60.0%  query  [db.so]
 40.0%   40.0%  (no symbol)  [stripped]
";
    for (is_named, expected) in [(false, pending), (true, named)] {
        let namer = FakeSymbolizer::new(|file| match file {
            "/lib/db.so" => &["query", "query"],
            _ => &[],
        });
        let batch = Batch {
            deferred_symbols: namer.names(),
            ..batch(specs)
        };
        let top = mute("processes: 0");
        top.export(&batch).await.unwrap();
        if is_named {
            namer.finish();
        }
        let text = top.render().unwrap();
        let rows = text.split_once("function").unwrap().1;
        assert_eq!(rows, expected);
    }
}

#[tokio::test]
async fn profcol_itself_is_not_ranked() {
    let path = std::env::current_exe().unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    let pid = i64::from(std::process::id());
    let specs: &[SampleSpec<'_>] = &[
        (name, pid, &["name", "main"], 90),
        (name, pid + 1, &["other", "main"], 6),
        ("another", pid, &["third", "main"], 4),
    ];
    let text = shown("{}", specs).await.unwrap();
    let expected =
        "── 1 s: 100 samples, 1.00 s of CPU time = 1.00 CPUs, 90.0% of it profcol itself";
    assert!(text.contains(expected), "{text}");
    let shares: Vec<&str> = text.lines().filter(|line| line.contains('%')).collect();
    assert!(
        !shares[1..].iter().any(|line| line.contains("90.0%")),
        "{text}"
    );
    assert!(text.contains("  6.0%  "), "{text}");
    assert!(text.contains("  4.0%  another"), "{text}");
}

#[tokio::test]
async fn printing_resets_the_tally() {
    let top = mute("{}");
    assert_eq!(top.render(), None);
    top.export(&batch(&[("a", 1, &["f"], 1)])).await.unwrap();
    assert!(top.render().is_some());
    assert_eq!(top.render(), None);
}

#[tokio::test]
async fn long_names_are_shortened_in_the_middle() {
    let name = format!("begin{}end", "x".repeat(500));
    let text = shown("{}", &[("a", 1, &[&name], 1)]).await.unwrap();
    assert!(text.contains("beginxx") && text.contains("x…x"), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() < 100),
        "{text}"
    );
}

#[test]
fn refuses_to_show_nothing() {
    for (options, expected) in [
        ("{functions: 0, processes: 0}", "shows nothing"),
        ("interval: 0s", "longer than 0s"),
    ] {
        let problems = load::<TopConfig>(options).unwrap_err();
        assert!(problems.contains(expected), "{problems}");
    }
}

/// Everything written, each piece with its second.
#[derive(Clone)]
struct Written {
    began: Instant,
    pieces: Arc<Mutex<Vec<(u64, String)>>>,
}

impl Written {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            pieces: Arc::default(),
        }
    }

    fn pieces(&self) -> Vec<(u64, String)> {
        self.pieces.lock().clone()
    }

    /// The seconds at which tables were printed.
    fn tables(&self) -> Vec<u64> {
        let pieces = self.pieces();
        let tables = pieces.iter().filter(|(_, text)| text.contains("──"));
        tables.map(|(second, _)| *second).collect()
    }
}

impl std::io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let second = self.began.elapsed().as_secs();
        self.pieces.lock().push((second, text));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Exports a batch at each of these times, in tenths of a second, and stops at `end`.
async fn printed_while(is_terminal: bool, batches: &[u64], end: u64) -> Written {
    let written = Written::new();
    let screen = Screen::new(written.clone(), is_terminal);
    let top = Arc::new(Top::new(&load("interval: 10s").unwrap(), screen));
    let stop = Stop::new();
    let running = Arc::clone(&top).run(stop.clone());
    let tenths = |count| written.began + Duration::from_millis(100 * count);
    let exporting = async {
        for &at in batches {
            sleep_until(tenths(at)).await;
            top.export(&batch(&[("a", 1, &["f"], 1)])).await.unwrap();
        }
        sleep_until(tenths(end)).await;
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(running, exporting);
    ended.unwrap();
    written
}

#[tokio::test(start_paused = true)]
async fn tables_have_a_steady_interval() {
    let steady: Vec<u64> = (1..60).map(|second| 10 * second).collect();
    let in_bursts = [10, 49, 151, 152, 203, 204, 205, 290, 333, 471, 509, 598];
    for batches in [&steady[..], &in_bursts] {
        let written = printed_while(false, batches, 600).await;
        // The last table has the samples since the one before.
        assert_eq!(written.tables(), [2, 12, 22, 32, 42, 52, 60], "{batches:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_interval_has_no_table_and_delays_no_other() {
    let written = printed_while(false, &[10, 333], 600).await;
    assert_eq!(written.tables(), [2, 42]);
    assert_eq!(written.pieces().len(), 2, "{:?}", written.pieces());
}

#[tokio::test(start_paused = true)]
async fn shows_progress_on_a_terminal_until_the_first_table() {
    let written = printed_while(true, &[35, 36, 120], 150).await;
    let shown = written.pieces();
    let lines: Vec<&str> = shown.iter().map(|(_, text)| &**text).collect();
    let moved = [
        "\r\x1b[KWaiting for samples... 0 s\r",
        "\r\x1b[KWaiting for samples... 1 s\r",
        "\r\x1b[KWaiting for samples... 2 s\r",
        "\r\x1b[KWaiting for samples... 3 s\r",
        "\r\x1b[KProfiling... 4 s, 2 samples\r",
    ];
    assert_eq!(lines[..5], moved);
    assert_eq!(written.tables(), [4, 14]);
    assert!(lines[5].starts_with("\r\x1b[K\n──"), "{lines:?}");
    assert_eq!(lines.len(), 7, "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn clears_the_progress_line_at_the_end() {
    let written = printed_while(true, &[], 5).await;
    let shown = written.pieces();
    assert_eq!(shown.last().unwrap().1, "\r\x1b[K", "{shown:?}");
    assert_eq!(printed_while(false, &[], 5).await.pieces(), []);
}
