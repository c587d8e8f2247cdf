//! Upload of the debuginfo of sampled executables.

mod server;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use ::http::StatusCode;
use async_trait::async_trait;
use profcol::REGISTRY;
use profcol_component::{
    Batch, BuildContext, BuildError, BuildId, Entry, Executable, Executables, Factory, IntCounter,
    Meter, Output, Receiver, Registry, RunError, SelfTelemetry, Shared, Stop, entry,
};
use profcol_config::{Config, Input, SystemProviders, resolve};
use profcol_debuginfo::{Dwarf, Plan};
use profcol_engine::{Document, Graph, Service};
use profcol_profile::{
    AttributeRef, Interner, Location, LocationRef, Mapping, MappingRef, Model, Profiles, SampleRef,
    Samples, StringIdx, Value,
};
use profcol_reader::Readers;
use profcol_reader::testkit::in_threads;
use profcol_test_harness::backend::wait_until;
use profcol_test_harness::peers::profcol;
use profcol_test_harness::support::{root, skip};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use self::server::{Fault, Server, Stage};
use crate::counted;

/// The build ID of the file `small`.
const ID: &str = "736d616c6c000000000000000000000000000000";
const HASH: &str = "00112233445566778899aabbccddeeff";

/// A source that offers executables and sends profiles with samples in them.
struct ExecutableSource {
    config: ExecutableSourceConfig,
    executables: Executables,
    pushed: IntCounter,
}

fn pushed(meter: &Meter) -> IntCounter {
    meter.counter("test_pushed_batches", "Batches pushed so far.", &[])
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
struct ExecutableSourceConfig {
    /// The file is removed once it is open. With an empty path, none is offered.
    files: Vec<OfferedFile>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
struct OfferedFile {
    build_id: String,
    path: String,
    samples: i64,
}

impl Config for ExecutableSourceConfig {}

impl Factory for ExecutableSource {
    const NAME: &'static str = "executable_source";
    type Config = ExecutableSourceConfig;
    type Component = dyn Receiver;

    fn build(
        config: &ExecutableSourceConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Receiver>, BuildError> {
        Ok(Box::new(Self {
            config: config.clone(),
            executables: context.shared.get(),
            pushed: pushed(&context.meter),
        }))
    }
}

#[async_trait]
impl Receiver for ExecutableSource {
    async fn run(self: Box<Self>, output: Output, stop: Stop) -> Result<(), RunError> {
        for file in &self.config.files {
            if file.path.is_empty() {
                continue;
            }
            let opened = File::open(&file.path).unwrap();
            fs::remove_file(&file.path).unwrap();
            self.executables.offer(&Executable {
                build_id: BuildId::Gnu(file.build_id.clone()),
                hash: HASH.into(),
                path: file.path.clone().into(),
                pid: std::process::id(),
                file: Arc::new(opened),
            });
        }
        while !stop.is_cancelled() {
            let batch = Batch::new(profiles(&self.config.files));
            output.push(batch).await.unwrap();
            self.pushed.inc();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

fn profiles(files: &[OfferedFile]) -> Profiles {
    let mut rows = Interner::new();
    let mut samples = Samples::default();
    let text = |rows: &mut Interner, key: &str, value: &str| {
        let key = rows.string(key);
        rows.attribute(AttributeRef {
            key,
            value: &Value::from(value),
            unit: StringIdx::UNSET,
        })
    };
    let native = text(&mut rows, "profile.frame.type", "native");
    for file in files {
        let id = text(&mut rows, "process.executable.build_id.gnu", &file.build_id);
        let filename = rows.string("/bin/program");
        let mapping = rows.mapping(MappingRef {
            mapping: Mapping {
                filename,
                ..Mapping::default()
            },
            attributes: &[id],
        });
        let location = rows.location(LocationRef {
            location: Location {
                mapping,
                address: 0x1234,
            },
            lines: &[],
            attributes: &[native],
        });
        let stack = rows.stack(&[location]);
        samples.push(SampleRef {
            stack,
            values: &[file.samples],
            ..SampleRef::default()
        });
    }
    let profile = counted(&mut rows, samples);
    Profiles::from_model(Model::of_profile(rows.finish(), None, profile))
}

/// A service that uploads files.
struct Rig {
    directory: TempDir,
    files: Vec<OfferedFile>,
    meter: Meter,
    /// What reads the files.
    readers: Readers,
    running: Option<(Runtime, Service)>,
}

/// The build ID of the file with this name.
fn id(name: &str) -> String {
    let digits: String = name.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("{digits:0<40}")
}

impl Rig {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            files: Vec::new(),
            meter: Meter::default(),
            readers: in_threads(),
            running: None,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn observe(&mut self, build_id: &str, path: &Path, samples: i64) {
        self.files.push(OfferedFile {
            build_id: build_id.into(),
            path: path.to_str().unwrap().into(),
            samples,
        });
    }

    /// With a small executable.
    fn with_defaults() -> Self {
        let mut rig = Self::new();
        let path = rig.small("small");
        rig.observe(ID, &path, 1);
        rig
    }

    /// A file with the build ID [`id`] of its name.
    fn small(&self, name: &str) -> PathBuf {
        let seed = root().join("fuzz/seeds/debuginfo/plain.so");
        self.copy(&seed, name)
    }

    /// [`PROGRAM`] and many functions, with some 100 KiB of DWARF.
    fn program(&self, options: &[&str]) -> Option<PathBuf> {
        let (source, program) = (self.path("program.cpp"), self.path("program"));
        let functions: String = (0..500)
            .map(|n| format!("unsigned function_{n}(unsigned x) {{ return inlined(x) + {n}; }}\n"))
            .collect();
        fs::write(&source, PROGRAM.to_owned() + &functions).unwrap();
        let mut building = Command::new("g++");
        building.args(["-O2", "-g"]).args(options);
        building.arg("-o").arg(&program).arg(&source);
        match building.output() {
            Ok(built) if built.status.success() => Some(program),
            outcome => {
                skip(&format!("g++: {outcome:?}"));
                None
            }
        }
    }

    /// A file of 512 MiB with the build ID [`id`] of its name; the sections are a small part, and the rest takes no room on disk.
    fn large(&self, name: &str) -> PathBuf {
        let path = self.small(name);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(512 << 20).unwrap();
        path
    }

    fn copy(&self, from: &Path, name: &str) -> PathBuf {
        // Lengths of name and build ID, the note type, and the name.
        const NOTE: &[u8] = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";
        let mut bytes = fs::read(from).unwrap();
        let mut windows = bytes.windows(NOTE.len()).take(64 << 10);
        let note = windows.position(|found| found == NOTE);
        let at = note.unwrap() + NOTE.len();
        bytes[at..at + 20].fill(0);
        bytes[at..at + name.len()].copy_from_slice(name.as_bytes());
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    fn start(&mut self, server: &Server, options: &str) {
        const RECEIVERS: &[Entry<dyn Receiver>] = &[entry::<ExecutableSource>()];
        let registry = Registry {
            receivers: RECEIVERS,
            ..REGISTRY
        };
        let files: Vec<String> = self
            .files
            .iter()
            .map(|file| {
                format!(
                    "{{build_id: '{}', path: '{}', samples: {}}}",
                    file.build_id, file.path, file.samples
                )
            })
            .collect();
        let config = format!(
            "yaml:{{receivers: {{executable_source: {{files: [{}]}}}}, exporters: {{parca: {{endpoint: '{}', tls: {{insecure: true}}, schema: v1, debuginfo: {{{options}}}}}}}, service: {{pipelines: {{profiles: {{receivers: [executable_source], exporters: [parca]}}}}}}}}",
            files.join(", "),
            server.address,
        );
        let input = Input {
            configs: vec![config],
            sets: Vec::new(),
        };
        let resolved =
            resolve(&input, &SystemProviders::default()).unwrap_or_else(|error| panic!("{error}"));
        let document = Document::read(&resolved.root, &registry)
            .unwrap_or_else(|problems| panic!("{}", problems.report(&resolved.sources)));
        let telemetry = SelfTelemetry {
            meter: self.meter.clone(),
            ..SelfTelemetry::default()
        };
        let shared = Shared::default();
        shared.put(self.readers.clone());
        let graph = Graph::build_with(&document, &telemetry, shared).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let service = runtime.block_on(Service::start(graph, &self.meter));
        self.running = Some((runtime, service.unwrap()));
    }

    fn stop(&mut self) {
        if let Some((runtime, service)) = self.running.take() {
            let report = runtime.block_on(service.stop(Duration::from_secs(20)));
            assert!(report.failures.is_empty(), "{:?}", report.failures);
        }
    }

    /// The value of a counter with this label.
    fn count(&self, name: &str, label: &str) -> u64 {
        let text = String::from_utf8(self.meter.render().unwrap()).unwrap();
        let line = text.lines().find(|line| {
            line.starts_with(&format!("otelcol_exporter_parca_debuginfo_{name}{{"))
                && line.contains(label)
        });
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        value.unwrap_or(0)
    }

    fn wait_for(&self, name: &str, label: &str) {
        wait_until(&format!("{name} {label}"), || self.count(name, label) > 0);
    }

    /// Waits for batches that could cause requests which must not happen.
    fn wait_for_more_batches(&self) {
        let pushed = pushed(&self.meter);
        let enough = pushed.get() + 10;
        wait_until("more batches", || pushed.get() >= enough);
    }
}

#[test]
fn a_deleted_file_is_uploaded_once_and_in_order() {
    let server = Server::new();
    let mut rig = Rig::with_defaults();
    let original = fs::read(rig.path("small")).unwrap();
    rig.start(&server, "");
    rig.wait_for("uploads", "uploaded");
    let entry = server.uploaded(ID).unwrap();
    assert_eq!(entry.hash, HASH);
    assert_eq!(entry.content.len() as u64, entry.size);
    assert!(entry.content.len() < original.len());
    let bytes = rig.count("uploaded_bytes", "");
    assert_eq!(bytes, entry.size);
    rig.wait_for_more_batches();
    let expected = [
        "ShouldInitiateUpload",
        "InitiateUpload",
        "Upload",
        "MarkUploadFinished",
    ];
    assert_eq!(server.calls(), expected);
    rig.stop();
}

#[test]
fn uploads_whole_files_if_configured() {
    let server = Server::new();
    let mut rig = Rig::with_defaults();
    let original = fs::read(rig.path("small")).unwrap();
    rig.start(&server, "strip: false");
    rig.wait_for("uploads", "uploaded");
    assert!(server.uploaded(ID).unwrap().content == original);
    rig.stop();
}

#[test]
fn uploads_the_hottest_file_first() {
    // So that all are known before the first upload.
    let server = Server::with(Fault::AwayFor(1));
    let mut rig = Rig::new();
    for (build_id, samples) in [("cold", 1), ("hot", 100), ("warm", 10)] {
        let path = rig.small(build_id);
        rig.observe(&id(build_id), &path, samples);
    }
    // The rate limit delays each upload by about a second.
    rig.start(&server, "rate_limit: 10000");
    wait_until("all to arrive", || server.state().files.len() == 3);
    let mut order: Vec<_> = server
        .state()
        .files
        .iter()
        .map(|(build_id, entry)| (entry.upload_id.clone(), build_id.clone()))
        .collect();
    order.sort();
    let order: Vec<_> = order.into_iter().map(|(_, build_id)| build_id).collect();
    assert_eq!(order, ["hot", "warm", "cold"].map(id));
    rig.stop();
}

#[test]
fn files_on_the_server_are_not_checked_again_even_after_a_restart() {
    let server = Server::new();
    server.state().add(ID, Stage::Uploaded);
    let mut rig = Rig::with_defaults();
    let state = format!("state_directory: '{}'", rig.path("state").display());
    rig.start(&server, &state);
    rig.wait_for("uploads", "there");
    rig.stop();
    assert_eq!(server.calls(), ["ShouldInitiateUpload"]);
    rig.small("small");
    let other = rig.small("other");
    rig.observe(&id("other"), &other, 1);
    rig.start(&server, &state);
    wait_until("the other", || server.uploaded(&id("other")).is_some());
    rig.stop();
    let requests = server.calls();
    let requests = requests
        .iter()
        .filter(|call| *call == "ShouldInitiateUpload");
    assert_eq!(requests.count(), 2, "one for each");
}

#[test]
fn skips_a_file_that_another_client_is_uploading() {
    let server = Server::new();
    server.state().add(ID, Stage::Uploading);
    let mut rig = Rig::with_defaults();
    rig.start(&server, "");
    rig.wait_for("uploads", "in_progress");
    rig.wait_for_more_batches();
    assert_eq!(server.calls(), ["ShouldInitiateUpload"]);
    assert_eq!(rig.count("waiting", ""), 1);
    rig.stop();
}

#[test]
fn counts_failed_uploads_by_reason() {
    let server = Server::new();
    let mut rig = Rig::new();
    let script = rig.path("script");
    fs::write(&script, "#!/bin/sh".repeat(100)).unwrap();
    rig.observe("script", &script, 1);
    let large = rig.large("large");
    rig.observe(&id("large"), &large, 1);
    rig.observe("elsewhere", Path::new(""), 1);
    let replaced = rig.small("replaced");
    rig.observe(&id("original"), &replaced, 1);
    let short = rig.small("short");
    rig.observe("ab", &short, 1);
    rig.start(&server, "max_file_size: 100000, strip: false");
    rig.wait_for("skipped", "unsupported");
    rig.wait_for("skipped", "too_large");
    rig.wait_for("skipped", "no_file");
    rig.wait_for("skipped", "replaced");
    rig.wait_for("uploads", "refused");
    assert_eq!(rig.count("skipped", "no_file"), 1);
    assert_eq!(server.calls(), ["ShouldInitiateUpload"; 3]);
    rig.stop();
}

#[test]
fn uploads_after_the_server_is_back() {
    let server = Server::with(Fault::AwayFor(1));
    let mut rig = Rig::with_defaults();
    rig.start(&server, "");
    wait_until("it to arrive", || server.uploaded(ID).is_some());
    assert_eq!(server.calls().len(), 5);
    rig.stop();
}

#[test]
fn asks_a_server_without_the_service_once() {
    let server = Server::with(Fault::NoService);
    let mut rig = Rig::with_defaults();
    rig.start(&server, "");
    wait_until("a request", || !server.calls().is_empty());
    rig.wait_for_more_batches();
    assert_eq!(server.calls(), ["ShouldInitiateUpload"]);
    rig.stop();
}

#[test]
fn an_interrupted_or_stalled_upload_is_never_marked_finished() {
    for fault in [Fault::CutsOff(2), Fault::StandsStill(2)] {
        let server = Server::with(fault);
        let mut rig = Rig::new();
        let large = rig.large("large");
        rig.observe(&id("large"), &large, 1);
        rig.start(&server, "timeout: 1s, strip: false");
        rig.wait_for("uploads", "broken");
        assert_eq!(server.calls().last().unwrap(), "Upload", "{fault:?}");
        assert_eq!(rig.count("waiting", ""), 1, "it waits to be stale");
        rig.stop();
    }
}

#[test]
fn slow_debuginfo_is_uploaded_compressed_or_without_lines() {
    let built = Rig::new();
    let Some(program) = built.program(&[]) else {
        return;
    };
    let program = built.copy(&program, "program");
    let file = File::open(&program).unwrap();
    let size = |dwarf| Plan::keeping(&file, dwarf).unwrap().size();
    let compressed = Plan::compressed(&file, Dwarf::Lines, u64::MAX, &|| true);
    let compressed = compressed.unwrap().unwrap().size();
    let (all, lines, none) = (size(Dwarf::All), size(Dwarf::Lines), size(Dwarf::None));
    assert!(none < compressed && compressed < lines && lines < all);
    let uploads = |fits: u64, arrives: u64, without_dwarf: u64| {
        let server = Server::new();
        let mut rig = Rig::new();
        // Removed once it is open.
        let copy = rig.path("program");
        fs::copy(&program, &copy).unwrap();
        rig.observe(&id("program"), &copy, 1);
        // The exporter plans uploads of at most 0.8 of the timeout. Compressing must not take longer either, by a
        // thread of low priority while other tests run.
        let rate = fits / 32 + 1;
        rig.start(&server, &format!("timeout: 40s, rate_limit: {rate}"));
        rig.wait_for("uploads", "uploaded");
        let entry = server.uploaded(&id("program")).unwrap();
        assert_eq!((entry.size, entry.content.len() as u64), (arrives, arrives));
        assert_eq!(rig.count("symbols_only", "time_limit"), without_dwarf);
        rig.stop();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| uploads(all + 100, all, 0));
        scope.spawn(|| uploads(all - 100, lines, 0));
        scope.spawn(|| uploads(lines - 100, compressed, 0));
        scope.spawn(|| uploads(compressed - 100, none, 1));
    });
}

#[test]
fn after_an_interrupted_upload_no_hopeless_upload_begins() {
    // Like a server with a `--http-read-timeout` of one second, at 8 MiB/s.
    let server = Server::with(Fault::ReadsSlowly {
        bytes: 8 << 20,
        within: Duration::from_secs(1),
    });
    let mut rig = Rig::new();
    let (first, second) = (rig.large("first"), rig.large("second"));
    rig.observe(&id("first"), &first, 3);
    rig.observe(&id("second"), &second, 2);
    let small = rig.small("small");
    rig.observe(ID, &small, 1);
    rig.start(&server, "strip: false, rate_limit: 0");
    rig.wait_for("uploads", "broken");
    rig.wait_for("skipped", "time_limit");
    rig.wait_for("uploads", "uploaded");
    assert_eq!(rig.count("uploads", "broken"), 1);
    assert!(server.uploaded(ID).is_some());
    rig.stop();
}

#[test]
fn abandons_the_upload_of_a_changing_file() {
    for (is_by_url, server) in [
        (false, Server::new()),
        (true, Server::with_signed_url(StatusCode::OK)),
    ] {
        let mut rig = Rig::new();
        let large = rig.large("large");
        let link = rig.path("link");
        fs::hard_link(&large, &link).unwrap();
        rig.observe(&id("large"), &large, 1);
        // The whole file would take minutes.
        rig.start(&server, "timeout: 1h, strip: false, rate_limit: 200000");
        wait_until("the upload to begin", || {
            server.calls().len() == 3 - usize::from(is_by_url)
        });
        // Renaming and removing the file does not stop the upload.
        fs::rename(&link, rig.path("renamed")).unwrap();
        rig.wait_for_more_batches();
        assert_eq!(rig.count("skipped", "changed"), 0);
        let mut renamed = File::options()
            .append(true)
            .open(rig.path("renamed"))
            .unwrap();
        renamed.write_all(b"more").unwrap();
        rig.wait_for("skipped", "changed");
        assert_eq!(
            rig.count("waiting", ""),
            1,
            "it is planned anew when the server allows it"
        );
        rig.wait_for_more_batches();
        assert!(!server.calls().contains(&"MarkUploadFinished".to_owned()));
        assert_eq!(server.state().ended_well, 0);
        rig.stop();
    }
}

#[test]
fn split_dwarf_uploads_only_symbols_and_is_counted() {
    let mut rig = Rig::new();
    let Some(program) = rig.program(&["-gsplit-dwarf"]) else {
        return;
    };
    let server = Server::new();
    let program = rig.copy(&program, "split");
    rig.observe(&id("split"), &program, 1);
    rig.start(&server, "");
    rig.wait_for("symbols_only", "split_dwarf");
    assert_eq!(rig.count("uploads", "uploaded"), 1);
    rig.stop();
}

#[test]
fn a_signed_url_gets_the_same_bytes() {
    let server = Server::with_signed_url(StatusCode::OK);
    let mut rig = Rig::with_defaults();
    rig.start(&server, "");
    rig.wait_for("uploads", "uploaded");
    let entry = server.uploaded(ID).unwrap();
    assert_eq!(entry.content.len() as u64, entry.size);
    let expected = [
        "ShouldInitiateUpload",
        "InitiateUpload",
        "PUT",
        "MarkUploadFinished",
    ];
    assert_eq!(server.calls(), expected);
    rig.stop();
}

#[test]
fn an_expired_signed_url_is_a_failure() {
    let server = Server::with_signed_url(StatusCode::FORBIDDEN);
    let mut rig = Rig::with_defaults();
    rig.start(&server, "");
    rig.wait_for("uploads", "broken");
    assert_eq!(server.calls().last().unwrap(), "PUT");
    rig.stop();
}

const PROGRAM: &str = r#"
#include <cstdio>
#include <cstdlib>

static inline __attribute__((always_inline)) unsigned inlined(unsigned x) {
    return x * 2654435761u ^ (x >> 7);
}

__attribute__((noinline)) unsigned busy(unsigned rounds) {
    unsigned x = 1;
    for (unsigned i = 0; i < rounds; i++) x = inlined(x + i);
    return x;
}

int main() {
    volatile unsigned x = 0;
    // With the same argument each time, one call would do.
    for (int i = 0; i < 1000; i++) x ^= busy(10000000 + i);
    return x == 42;
}
"#;

#[test]
fn uploaded_debuginfo_symbolizes_an_exited_program() {
    let is_root = fs::read_to_string("/proc/self/status")
        .is_ok_and(|status| status.lines().any(|line| line.starts_with("Uid:\t0\t0")));
    if !is_root || !Path::new("/sys/kernel/btf/vmlinux").exists() {
        skip("this is not root, or the kernel has no type information (BTF)");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (source, program) = (
        directory.path().join("busy.cpp"),
        directory.path().join("busy"),
    );
    fs::write(&source, PROGRAM).unwrap();
    let mut building = Command::new("g++");
    building.args(["-O2", "-g", "-Wl,--build-id", "-o"]);
    if !building
        .arg(&program)
        .arg(&source)
        .status()
        .is_ok_and(|built| built.success())
    {
        skip("there is no g++");
        return;
    }
    let kept = directory.path().join("kept");
    fs::copy(&program, &kept).unwrap();
    let notes = output("readelf", &["-n", kept.to_str().unwrap()]).unwrap();
    let id = notes.split("Build ID: ").nth(1).unwrap();
    let id = id.split_whitespace().next().unwrap();

    // It is down until the program has exited.
    let server = Server::with(Fault::AwayFor(usize::MAX));
    let config = format!(
        "\
receivers:
  ebpf_cpu: {{frequency: 199, interval: 300ms, include: [{{executable: '{}'}}]}}
exporters:
  parca: {{endpoint: \"{}\", tls: {{insecure: true}}, schema: v1}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    profiles: {{receivers: [ebpf_cpu], exporters: [parca]}}
",
        program.display(),
        server.address
    );
    let mut profcol = profcol(&config);
    profcol.wait_for_output("to be ready", |output| {
        output.contains("Everything is ready")
    });
    let mut running = Command::new(&program).spawn().unwrap();
    wait_until("it to be offered", || !server.calls().is_empty());
    running.kill().unwrap();
    running.wait().unwrap();
    fs::remove_file(&program).unwrap();
    server.state().fault = None;
    wait_until("the upload", || server.uploaded(id).is_some());
    let uploaded = directory.path().join("uploaded");
    fs::write(&uploaded, server.uploaded(id).unwrap().content).unwrap();

    let symbols = output("nm", &[kept.to_str().unwrap()]).unwrap();
    let busy = symbols.lines().find(|line| line.contains("busy")).unwrap();
    let start = u64::from_str_radix(busy.split(' ').next().unwrap(), 16).unwrap();
    // Any release works: it is compared with itself.
    let symbolizers = ["llvm-symbolizer-22", "llvm-symbolizer"];
    let works = |name: &&str| Command::new(name).arg("--version").output().is_ok();
    let symbolizer = symbolizers.into_iter().find(works);
    let symbolizer = symbolizer.unwrap_or("llvm-symbolizer");
    let names = |file: &Path| {
        let at: Vec<String> = (0..64).map(|step| format!("{:#x}", start + step)).collect();
        let mut arguments = vec!["--obj", file.to_str().unwrap()];
        arguments.extend(at.iter().map(String::as_str));
        output(symbolizer, &arguments)
    };
    let (Some(expected), Some(found)) = (names(&kept), names(&uploaded)) else {
        return;
    };
    assert!(expected.contains("inlined\n"), "{expected}");
    assert_eq!(found, expected);
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    match Command::new(program).args(arguments).output() {
        Ok(output) if output.status.success() => Some(String::from_utf8(output.stdout).unwrap()),
        outcome => {
            skip(&format!("{program} does not work: {outcome:?}"));
            None
        }
    }
}
