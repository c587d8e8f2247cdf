//! Symbolizes code of this test program, with files from different sources.

mod host;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use profcol_component::testkit::{context, load, wait_for};
use profcol_component::{BuildId, DeferredSymbols, Executable, Executables, SymbolLookup};
use profcol_profile::{
    AttributeRef, Interner, KeyValue, Line, Location, LocationRef, Mapping, MappingRef, Model,
    Profile, Resource, SampleRef, Samples, StringIdx,
};
use profcol_reader::testkit::in_threads;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::unresolved::Module;
use super::*;

/// The sampled function of these tests.
#[inline(never)]
fn landmark() -> u32 {
    std::process::id()
}

#[derive(Default)]
struct Keep(Mutex<Vec<(Profiles, DeferredSymbols)>>);

#[async_trait]
impl Consumer for Keep {
    async fn consume(&self, batch: Batch) -> Answer {
        self.0.lock().push((batch.profiles, batch.deferred_symbols));
        Ok(())
    }
}

/// A running processor.
struct Fixture {
    processor: Arc<SymbolizeProcessor>,
    context: BuildContext,
    keep: Arc<Keep>,
    stop: Stop,
    tasks: JoinSet<Result<(), RunError>>,
}

impl Fixture {
    fn new(options: &str) -> Self {
        let mut rig = Self::idle(options);
        rig.start();
        rig
    }

    fn start(&mut self) {
        let run = Arc::clone(&self.processor).run(self.keep.clone(), self.stop.clone());
        self.tasks.spawn(run);
    }

    /// Without workers.
    fn idle(options: &str) -> Self {
        Self::idle_with(options, in_threads())
    }

    /// Executables are read in other processes, which are threads here, or in this one.
    fn idle_with(options: &str, readers: Readers) -> Self {
        let context = context("symbolize");
        context.shared.put(readers);
        let config = load(options).unwrap();
        Self {
            processor: Arc::new(SymbolizeProcessor::new(&config, &context).unwrap()),
            context,
            keep: Arc::default(),
            stop: Stop::new(),
            tasks: JoinSet::new(),
        }
    }

    /// A batch after processing.
    async fn pass(&self, profiles: Profiles) -> Profiles {
        self.pass_with_names(profiles).await.0
    }

    async fn pass_with_names(&self, profiles: Profiles) -> (Profiles, DeferredSymbols) {
        let batch = Batch::new(profiles);
        self.processor.process(batch, &*self.keep).await.unwrap();
        self.keep.0.lock().pop().unwrap()
    }

    fn counts(&self, line: &str) -> bool {
        let text = String::from_utf8(self.context.meter.render().unwrap()).unwrap();
        text.lines().any(|it| it == line)
    }

    async fn finish(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap().unwrap();
        }
    }
}

/// This program, and where its code is mapped.
struct Own {
    path: PathBuf,
    build_id: String,
    mapping: Mapping,
    /// The address of a function in it.
    address: u64,
}

impl Own {
    fn read() -> Self {
        Self::with(landmark as fn() -> u32 as usize as u64)
    }

    /// The file with the code at this address.
    fn with(at: u64) -> Self {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let mapping = maps.lines().find_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (start, limit) = words[0].split_once('-').unwrap();
            let (memory_start, memory_limit) = (number(start), number(limit));
            (memory_start..memory_limit).contains(&at).then(|| {
                let mapping = Mapping {
                    memory_start,
                    memory_limit,
                    file_offset: number(words[2]),
                    filename: StringIdx::UNSET,
                };
                (PathBuf::from(words[5]), mapping)
            })
        });
        let (path, mapping) = mapping.unwrap();
        let id = profcol_debuginfo::build_id(&File::open(&path).unwrap());
        // Rust's linkers add no build ID by default.
        let build_id = id.map_or("0123".to_owned(), |id| {
            id.iter().map(|byte| format!("{byte:02x}")).collect()
        });
        Self {
            path,
            build_id,
            mapping,
            address: at,
        }
    }

    /// The function `landmark` of a library.
    fn of_library(path: &str) -> Self {
        let mut list = std::process::Command::new("nm");
        let output = list.args(["-D", path]).output().unwrap();
        let symbols = String::from_utf8(output.stdout).unwrap();
        let mut lines = symbols.lines();
        let address = lines.find_map(|it| it.strip_suffix(" T landmark"));
        let id = profcol_debuginfo::build_id(&File::open(path).unwrap()).unwrap();
        Self {
            path: path.into(),
            build_id: id.iter().map(|byte| format!("{byte:02x}")).collect(),
            mapping: Mapping::default(),
            address: u64::from_str_radix(address.unwrap(), 16).unwrap(),
        }
    }

    fn offered(&self) -> Executable {
        Executable {
            build_id: BuildId::Gnu(self.build_id.clone()),
            hash: String::new(),
            path: self.path.clone(),
            pid: landmark(),
            file: Arc::new(File::open(&self.path).unwrap()),
        }
    }

    /// A profile of [`landmark`] with this path and build ID.
    fn profile(&self, path: &Path, build_id: &str, kind: &str) -> Profiles {
        let mut rows = Interner::new();
        let attributes = [
            ("process.executable.build_id.gnu", build_id),
            ("profile.frame.type", kind),
        ];
        let [id, kind] = attributes.map(|(key, value)| {
            let key = rows.string(key);
            rows.attribute(AttributeRef {
                key,
                value: &value.into(),
                unit: StringIdx::UNSET,
            })
        });
        let filename = rows.string(path.to_str().unwrap());
        let ids = [id];
        let mapping = rows.mapping(MappingRef {
            mapping: Mapping {
                filename,
                ..self.mapping
            },
            attributes: if build_id.is_empty() { &[] } else { &ids },
        });
        let location = rows.location(LocationRef {
            location: Location {
                mapping,
                address: self.address + 1,
            },
            lines: &[],
            attributes: &[kind],
        });
        let mut samples = Samples::default();
        samples.push(SampleRef {
            stack: rows.stack(&[location]),
            values: &[1],
            ..SampleRef::default()
        });
        let resource = Resource {
            attributes: vec![KeyValue::new("process.pid", i64::from(landmark()))],
            ..Resource::default()
        };
        let profile = Profile {
            samples,
            ..Profile::default()
        };
        Profiles::from_model(Model::of_profile(rows.finish(), Some(resource), profile))
    }

    fn native(&self) -> Profiles {
        self.profile(&self.path, &self.build_id, "native")
    }
}

/// Name, linkage name, file and line of the outermost function.
fn named(profiles: &Profiles) -> Option<(String, String, String, i64)> {
    let dictionary = &profiles.model().dictionary;
    let location = dictionary.locations.get(LocationIdx::new(1));
    let &Line { function, line, .. } = location.lines.last()?;
    let function = dictionary.functions.get(function)?;
    let text = |index| dictionary.strings.get(index).to_owned();
    Some((
        text(function.name),
        text(function.system_name),
        text(function.filename),
        line,
    ))
}

#[track_caller]
fn assert_named(profiles: &Profiles) {
    let (name, system_name, file, line) = named(profiles).expect("resolved");
    assert_eq!(name, "profcol_processors::symbolize::tests::landmark");
    assert!(system_name.starts_with("_"), "{system_name}");
    assert!(
        file.ends_with("components/processors/symbolize/tests/mod.rs"),
        "{file}"
    );
    assert!(line > 0);
}

#[tokio::test]
async fn symbolizes_with_an_offered_file() {
    for readers in [in_threads(), Readers::default()] {
        let mut rig = Fixture::idle_with("timeout: 1m", readers);
        rig.start();
        let own = Own::read();
        rig.context
            .shared
            .get::<Executables>()
            .offer(&own.offered());
        let gone = own.profile(Path::new("/gone"), &own.build_id, "native");
        assert_named(&rig.pass(gone.clone()).await);
        assert!(rig.counts(
            "profcol_symbolize_resolved_locations{pipeline=\"\",processor=\"symbolize\"} 1"
        ));
        // The second batch does not wait for workers.
        rig.stop.cancel();
        assert_named(&rig.pass(gone).await);
        rig.finish().await;
    }
}

#[tokio::test]
async fn finds_a_file_by_path_and_build_id() {
    let (rig, own) = (Fixture::new("{}"), Own::read());
    // This program may have no build ID; the C library has one.
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let library = maps.lines().find_map(|line| {
        let path = line.split_whitespace().nth(5)?;
        path.contains("/libc.so.6").then(|| PathBuf::from(path))
    });
    let library = library.expect("tests are linked with a C library");
    let id = profcol_debuginfo::build_id(&File::open(&library).unwrap()).unwrap();
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let right = Module {
        build_id: id.as_str().into(),
        path: library.clone(),
        processes: vec![landmark()],
    };
    assert!(rig.processor.files.open(&right).found.is_some());
    let wrong = Module {
        build_id: own.build_id.as_str().into(),
        ..right.clone()
    };
    assert!(rig.processor.files.open(&wrong).found.is_none());
    for path in [
        "/dev/zero",
        "/proc/self/maps",
        "relative",
        "/../../etc/passwd",
        "",
    ] {
        let path = path.into();
        let strange = Module {
            path,
            ..right.clone()
        };
        assert!(
            rig.processor.files.open(&strange).found.is_none(),
            "{strange:?}"
        );
    }
    rig.finish().await;
}

#[tokio::test]
async fn batches_without_unresolved_locations_keep_their_bytes() {
    let (rig, own) = (Fixture::new("{}"), Own::read());
    rig.context
        .shared
        .get::<Executables>()
        .offer(&own.offered());
    for (kind, reason) in [
        ("kernel", None),
        ("cpython", None),
        ("native", Some("no_build_id")),
    ] {
        let wire = own.profile(&own.path, "", kind).to_wire();
        let received = Profiles::from_wire(wire.clone(), Default::default()).unwrap();
        let passed = rig.pass(received.profiles).await;
        assert_eq!(named(&passed), None, "{kind}");
        assert_eq!(
            passed.to_wire().as_ptr(),
            wire.as_ptr(),
            "{kind}: same buffer"
        );
        if let Some(reason) = reason {
            assert!(rig.counts(&unresolved(reason, 1)));
        }
    }
    let idle = Fixture::idle("targets: none");
    let passed = idle.pass(own.native()).await;
    assert_eq!(named(&passed), None);
    assert!(!idle.context.shared.get::<Executables>().has_subscribers());
    rig.finish().await;
}

fn unresolved(reason: &str, count: u32) -> String {
    format!(
        "profcol_symbolize_unresolved_locations{{pipeline=\"\",processor=\"symbolize\",reason=\"{reason}\"}} {count}"
    )
}

#[tokio::test]
async fn a_batch_waits_no_longer_than_the_timeout() {
    let (rig, own) = (Fixture::idle("timeout: 2ms"), Own::read());
    let passed = rig.pass(own.native()).await;
    assert_eq!(named(&passed), None);
    assert!(rig.counts("profcol_symbolize_timeouts{pipeline=\"\",processor=\"symbolize\"} 1"));
    assert!(rig.counts(&unresolved("timeout", 1)));
}

#[tokio::test]
async fn the_backlog_is_bounded() {
    let (rig, own) = (
        Fixture::idle("{timeout: 2ms, max_memory: 16777216}"),
        Own::read(),
    );
    let addresses = (16 << 20) / 16 / PLACE_BYTES as u64;
    for more in 0..addresses {
        let address = own.address + more;
        let own = Own {
            address,
            path: own.path.clone(),
            build_id: own.build_id.clone(),
            mapping: own.mapping,
        };
        rig.pass(own.native()).await;
    }
    assert!(!rig.counts(&unresolved("busy", 1)));
    let beyond = Own {
        address: own.address - 1,
        ..own
    };
    let (passed, deferred_symbols) = rig.pass_with_names(beyond.native()).await;
    assert!(rig.counts(&unresolved("busy", 1)));
    assert_eq!(named(&passed), None);
    assert!(deferred_symbols.is_empty(), "nothing is pending");
}

#[tokio::test(start_paused = true)]
async fn after_a_timeout_no_batch_waits_until_the_workers_catch_up() {
    let (mut rig, own) = (Fixture::idle("timeout: 10s"), Own::read());
    rig.context
        .shared
        .get::<Executables>()
        .offer(&own.offered());
    for seconds in [10, 0, 0] {
        let began = Instant::now();
        assert_eq!(named(&rig.pass(own.native()).await), None);
        assert_eq!(began.elapsed().as_secs(), seconds);
    }
    rig.start();
    while !rig.processor.backlog.is_empty() {
        // A blocking thread keeps the paused clock from advancing.
        spawn_blocking(|| std::thread::sleep(Duration::from_millis(2)))
            .await
            .unwrap();
    }
    // Workers use the real clock.
    tokio::time::resume();
    assert_named(&rig.pass(own.native()).await);
    let missing = own.profile(Path::new("/gone"), "0badc0de", "native");
    rig.pass(missing).await;
    assert!(rig.counts(&unresolved("no_file", 1)), "it was waited for");
    rig.finish().await;
}

#[tokio::test]
async fn deferred_symbols_are_resolved_later() {
    let (mut rig, own) = (Fixture::idle("timeout: 2ms"), Own::read());
    rig.context
        .shared
        .get::<Executables>()
        .offer(&own.offered());
    let (passed, deferred_symbols) = rig.pass_with_names(own.native()).await;
    assert_eq!(named(&passed), None);
    let dictionary = Arc::clone(&passed.model().dictionary);
    let late = deferred_symbols
        .find(&dictionary, LocationIdx::new(1))
        .unwrap();
    assert!(matches!(late.lookup(), SymbolLookup::Pending));
    rig.start();
    let frames = wait_for("the symbols", async || match late.lookup() {
        SymbolLookup::Resolved(frames) => Some(frames),
        SymbolLookup::Pending => None,
        SymbolLookup::NotFound => panic!("it was resolved"),
    })
    .await;
    let outermost = frames.last().unwrap();
    assert!(outermost.name.ends_with("tests::landmark"), "{outermost:?}");
    // Also after the processor has ended: files are written last.
    rig.finish().await;
    assert!(matches!(late.lookup(), SymbolLookup::Resolved(_)));
}

#[tokio::test]
async fn resolved_and_unresolvable_batches_have_no_deferred_symbols() {
    let (rig, own) = (Fixture::new("timeout: 1m"), Own::read());
    rig.context
        .shared
        .get::<Executables>()
        .offer(&own.offered());
    let (passed, deferred_symbols) = rig.pass_with_names(own.native()).await;
    assert_named(&passed);
    assert!(deferred_symbols.is_empty());
    let missing = own.profile(Path::new("/gone"), "0badc0de", "native");
    let (passed, deferred_symbols) = rig.pass_with_names(missing).await;
    assert_eq!(named(&passed), None);
    assert!(deferred_symbols.is_empty());
    rig.finish().await;
}

#[tokio::test]
async fn a_damaged_file_does_not_affect_others() {
    let (rig, own) = (Fixture::new("timeout: 60s"), Own::read());
    let directory = tempfile::tempdir().unwrap();
    let bad = directory.path().join("bad");
    fs::write(
        &bad,
        [b"\x7fELF\x02\x01\x01".as_slice(), &[0xff; 200]].concat(),
    )
    .unwrap();
    rig.context.shared.get::<Executables>().offer(&Executable {
        build_id: BuildId::Gnu("bad".into()),
        file: Arc::new(File::open(&bad).unwrap()),
        ..own.offered()
    });
    rig.context
        .shared
        .get::<Executables>()
        .offer(&own.offered());
    for (build_id, reason) in [("bad", "refused"), ("missing", "no_file")] {
        let profile = own.profile(Path::new("/gone"), build_id, "native");
        assert_eq!(named(&rig.pass(profile).await), None);
        assert!(rig.counts(&unresolved(reason, 1)), "{reason}");
    }
    assert_named(&rig.pass(own.native()).await);
    rig.finish().await;
}

#[tokio::test]
async fn the_number_of_open_files_is_bounded() {
    let (rig, own) = (Fixture::idle("max_open: 2"), Own::read());
    for id in ["a", "b", "a", "c"] {
        rig.context.shared.get::<Executables>().offer(&Executable {
            build_id: BuildId::Gnu(id.into()),
            ..own.offered()
        });
        rig.processor.files.take_offered();
    }
    let held = ["a", "b", "c"].map(|id| {
        let module = Module {
            build_id: id.into(),
            path: "/gone".into(),
            processes: Vec::new(),
        };
        rig.processor.files.open(&module).found.is_some()
    });
    assert_eq!(held, [false, true, true]);
    assert!(rig.counts("profcol_symbolize_dropped_files{pipeline=\"\",processor=\"symbolize\"} 1"));
}

#[test]
fn validates_the_options() {
    for (options, problem) in [
        ("timeout: -1s", "must not be negative"),
        ("workers: 0", "must be between 1 and 64"),
        ("max_open: 0", "must be between 1 and 65536"),
        ("max_memory: 1000", "must be at least 16777216"),
        ("max_cpu: 0", "must be above 0 and at most 1"),
        ("max_cpu: 1.5", "must be above 0 and at most 1"),
        ("priority: high", "priority"),
        ("debug_directories: [debug]", "is not an absolute path"),
        ("targets: native", "native"),
        ("debuginfod: {urls: [example.com]}", "urls::0"),
        (
            "debuginfod: {cache_directory: cache}",
            "is not an absolute path",
        ),
        ("debuginfod: {cache_bytes: 0}", "must be above 0"),
        ("debuginfod: {timeout: 0s}", "must be positive"),
    ] {
        let refused = load::<SymbolizeConfig>(options).unwrap_err();
        assert!(refused.contains(problem), "{options}: {refused}");
    }
}

#[tokio::test]
async fn symbolizes_with_a_downloaded_executable() {
    // This program may have no build ID; the C library has one.
    let library = Own::with(libc::getpid as unsafe extern "C" fn() -> i32 as usize as u64);
    let body = fs::read(&library.path).unwrap();
    let expected = format!("/buildid/{}/executable", library.build_id);
    let (url, directory) = (
        debuginfod::tests::serve(move |path, stream| {
            let found: (&str, &[u8]) = match path == expected {
                true => ("200 OK", &body),
                false => ("404 Not Found", b""),
            };
            debuginfod::tests::answer(stream, found.0, found.1);
        }),
        tempfile::tempdir().unwrap(),
    );
    let rig = Fixture::new(&format!(
        "debuginfod: {{urls: [{url:?}], cache_directory: {}}}",
        directory.path().display()
    ));
    let gone = library.profile(Path::new("/gone"), &library.build_id, "native");
    // No batch waits for the server.
    let (_, system_name, ..) = wait_for("the download", async || {
        named(&rig.pass(gone.clone()).await)
    })
    .await;
    assert!(system_name.contains("getpid"), "{system_name}");
    rig.finish().await;
}

#[tokio::test]
async fn symbolizes_with_a_dwo_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (source, object, library) = (path("code.c"), path("code.o"), path("code.so"));
    let code = "static inline __attribute__((always_inline)) int inner(int a) { return a * 7; }
        int landmark(int a) { return inner(a); }";
    fs::write(&source, code).unwrap();
    let options = ["-O1", "-g", "-gsplit-dwarf", "-fPIC", "-Wl,--build-id"];
    run(
        "cc",
        &[&options[..], &["-c", &source, "-o", &object]].concat(),
    );
    run(
        "cc",
        &[&options[..], &["-shared", &object, "-o", &library]].concat(),
    );
    let code = Own::of_library(&library);
    for (has_dwo, frames) in [(true, 2), (false, 1)] {
        if !has_dwo {
            fs::remove_file(path("code.dwo")).unwrap();
        }
        let rig = Fixture::new("{}");
        rig.context
            .shared
            .get::<Executables>()
            .offer(&code.offered());
        let passed = rig.pass(code.native()).await;
        let (name, _, file, line) = named(&passed).expect("resolved");
        assert_eq!(name, "landmark");
        assert!(file.ends_with("code.c") && line > 0, "{file}:{line}");
        let dictionary = &passed.model().dictionary;
        let location = dictionary.locations.get(LocationIdx::new(1));
        assert_eq!(location.lines.len(), frames, "with a .dwo file: {has_dwo}");
        rig.finish().await;
    }
}

fn run(tool: &str, words: &[&str]) {
    let status = std::process::Command::new(tool).args(words).status();
    assert!(status.unwrap().success(), "{tool} {words:?}");
}

#[tokio::test]
async fn lines_are_added_once_the_debug_file_is_downloaded() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (source, library, debug) = (path("code.c"), path("code.so"), path("code.debug"));
    fs::write(&source, "int landmark(int a) {\n  return a * 7;\n}\n").unwrap();
    let build = ["-g", "-shared", "-fPIC", "-Wl,--build-id", "-o", &library];
    let build = [&build[..], &[&source]].concat();
    let split = ["--only-keep-debug", &library, &debug];
    run("cc", &build);
    run("objcopy", &split);
    run("strip", &[&library]);
    let code = Own::of_library(&library);
    let body = fs::read(&debug).unwrap();
    let url = debuginfod::tests::serve(move |path, stream| {
        assert!(path.ends_with("/debuginfo"), "{path}");
        debuginfod::tests::answer(stream, "200 OK", &body);
    });
    let rig = Fixture::new(&format!(
        "debuginfod: {{urls: [{url:?}], cache_directory: {}}}",
        path("cache")
    ));
    rig.context
        .shared
        .get::<Executables>()
        .offer(&code.offered());
    let (file, line) = wait_for("the download", async || {
        let (name, _, file, line) = named(&rig.pass(code.native()).await).expect("resolved");
        assert_eq!(name, "landmark");
        (line > 0).then_some((file, line))
    })
    .await;
    assert!(file.ends_with("code.c") && line <= 2, "{file}:{line}");
    rig.finish().await;
}
