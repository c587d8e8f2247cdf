//! With a local server whose answers are correct, missing, late and wrong.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use profcol_component::Severity;
use profcol_component::testkit::{context, load, wait_for};
use profcol_debuginfo::build_id;
use profcol_elf::hex;
use tempfile::TempDir;

use super::*;
use crate::symbolize::config::SymbolizeConfig;

/// A server that passes each request's path to `answer`.
pub(in crate::symbolize) fn serve(
    answer: impl Fn(&str, &mut TcpStream) + Send + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    // It ends with the test process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let Some(Ok(first)) = lines.next() else {
                continue;
            };
            while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
            answer(first.split(' ').nth(1).unwrap(), &mut stream);
        }
    });
    url
}

pub(in crate::symbolize) fn answer(stream: &mut TcpStream, status: &str, body: &[u8]) {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    // Fails if the client disconnected.
    let _sent = stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(body));
}

/// Downloads files on its own thread.
struct Fixture {
    debuginfod: Arc<Debuginfod>,
    meter: profcol_component::Meter,
    directory: TempDir,
    stop: Stop,
    thread: std::thread::JoinHandle<()>,
}

impl Fixture {
    fn new(urls: &[&str], bytes: u64, timeout: &str) -> Self {
        let context = context("symbolize");
        let directory = tempfile::tempdir().unwrap();
        let cache = directory.path().join("cache");
        let cache = cache.display();
        let options = format!(
            "debuginfod: {{urls: {urls:?}, cache_directory: {cache}, cache_bytes: {bytes}, timeout: {timeout}}}"
        );
        let config: SymbolizeConfig = load(&options).unwrap();
        let config = config.debuginfod.as_ref().unwrap();
        let telemetry = Arc::new(Telemetry::new(&context));
        let debuginfod = Arc::new(Debuginfod::new(config, None, telemetry).unwrap());
        debuginfod.begin().unwrap();
        let stop = Stop::new();
        let (asking, runtime, until) = (debuginfod.clone(), Handle::current(), stop.clone());
        Self {
            debuginfod,
            meter: context.meter.clone(),
            directory,
            stop,
            thread: std::thread::spawn(move || asking.run(&runtime, &until)),
        }
    }

    /// The final result for a file.
    async fn fetch(&self, build_id: &str) -> Option<File> {
        let request = FileRequest {
            build_id: build_id.into(),
            what: FileKind::DebugInfo,
        };
        wait_for("the download", async || {
            match self.debuginfod.find(&request) {
                Fetched::Here(file) => Some(Some(file)),
                Fetched::Nowhere => Some(None),
                Fetched::Downloading => None,
            }
        })
        .await
    }

    fn count(&self, result: &str) -> u64 {
        let text = String::from_utf8(self.meter.render().unwrap()).unwrap();
        let label = format!("result=\"{result}\"}} ");
        let mut lines = text
            .lines()
            .filter(|it| it.starts_with("profcol_symbolize_debuginfod_requests{"));
        let line = lines.find_map(|it| it.split_once(&label));
        line.unwrap().1.parse().unwrap()
    }

    fn cached(&self) -> Vec<String> {
        let files = fs::read_dir(self.directory.path().join("cache")).unwrap();
        let name = |it: io::Result<fs::DirEntry>| it.unwrap().file_name().into_string().unwrap();
        files.map(name).collect()
    }

    async fn finish(self) {
        self.stop.cancel();
        self.debuginfod.close();
        let joined = tokio::task::spawn_blocking(move || self.thread.join());
        joined.await.unwrap().unwrap();
    }
}

/// The C library of this program, which has a build ID, and that ID.
fn library() -> (Vec<u8>, String) {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let path = maps.lines().find_map(|line| {
        let path = line.split_whitespace().nth(5)?;
        path.contains("/libc.so.6").then(|| Path::new(path))
    });
    let bytes = fs::read(path.expect("tests are linked with a C library")).unwrap();
    let id = hex(&build_id(&bytes).unwrap());
    (bytes, id)
}

#[tokio::test]
async fn a_file_is_downloaded_once_and_cached() {
    let (bytes, id) = library();
    let (body, expected) = (bytes.clone(), format!("/buildid/{id}/debuginfo"));
    let url = serve(move |path, stream| match path == expected {
        true => answer(stream, "200 OK", &body),
        false => answer(stream, "404 Not Found", b""),
    });
    let absent = serve(|_, stream| answer(stream, "404 Not Found", b"no"));
    let rig = Fixture::new(&[&absent, &url], 1 << 30, "60s");
    let mut found = rig.fetch(&id).await.unwrap();
    let mut content = Vec::new();
    io::Read::read_to_end(&mut found, &mut content).unwrap();
    assert!(content == bytes, "it is the file");
    assert_eq!(rig.cached(), [format!("{id}.debuginfo")]);
    assert!(rig.fetch(&id).await.is_some());
    assert_eq!((rig.count("found"), rig.count("absent")), (1, 1));
    // Cached files are verified again.
    let file = rig.directory.path().join(format!("cache/{id}.debuginfo"));
    fs::write(&file, "rubbish").unwrap();
    assert!(rig.fetch(&id).await.is_some());
    assert_eq!(rig.count("found"), 2);
    rig.finish().await;
}

#[tokio::test]
async fn missing_files_are_not_requested_again() {
    let url = serve(|_, stream| answer(stream, "404 Not Found", b"no"));
    let rig = Fixture::new(&[&url], 1 << 30, "60s");
    for _ in 0..3 {
        assert!(rig.fetch("0123456789abcdef").await.is_none());
    }
    assert_eq!(rig.count("absent"), 1);
    for strange in ["", "01", "../../etc/passwd", "0123456789abcdeg"] {
        assert!(rig.fetch(strange).await.is_none());
    }
    assert_eq!(rig.count("absent"), 1);
    rig.finish().await;
}

#[tokio::test]
async fn requests_to_a_failed_server_pause() {
    let hangs = serve(|_, stream| {
        let _sent = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n1");
        std::mem::forget(stream.try_clone());
    });
    let broken = serve(|_, stream| answer(stream, "503 Service Unavailable", b""));
    let cut = serve(|_, stream| {
        let _sent =
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\nconnection: close\r\n\r\n1");
    });
    let rig = Fixture::new(&[&hangs, &broken, &cut], 1 << 30, "50ms");
    assert!(rig.fetch("0123456789abcdef").await.is_none());
    assert_eq!(rig.count("failed"), 3);
    assert!(rig.fetch("fedcba9876543210").await.is_none());
    assert_eq!(rig.count("failed"), 3);
    assert_eq!(rig.cached(), [""; 0]);
    rig.finish().await;
}

#[tokio::test]
async fn unusable_files_are_not_cached() {
    let (bytes, id) = library();
    let length = bytes.len() as u64;
    let body = bytes.clone();
    let url = serve(move |path, stream| match path.contains("0123") {
        true => answer(stream, "200 OK", b"rubbish"),
        false => answer(stream, "200 OK", &body),
    });
    let endless = serve(move |_, stream| {
        let head = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
        let mut sent = stream.write_all(head);
        while sent.is_ok() {
            sent = stream.write_all(&[0; 65536]);
        }
    });
    let check = async |urls: &[&str], max_bytes: u64, id: &str| {
        let rig = Fixture::new(urls, max_bytes, "60s");
        assert!(rig.fetch(id).await.is_none());
        assert_eq!(rig.count("refused"), 1, "{urls:?} {id}");
        assert_eq!(rig.cached(), [""; 0]);
        rig.finish().await;
    };
    check(&[&url], 1 << 30, "0123456789abcdef").await;
    // Not the file's build ID.
    check(&[&url], 1 << 30, "fedcba9876543210").await;
    check(&[&url], length - 1, &id).await;
    check(&[&endless], length, &id).await;
}

#[tokio::test]
async fn a_check_asks_each_server_and_stores_nothing() {
    let good = serve(|path, stream| {
        assert_eq!(path, format!("/buildid/{}/debuginfo", "0".repeat(40)));
        answer(stream, "404 Not Found", b"no");
    });
    let strict = serve(|_, stream| answer(stream, "403 Forbidden", b""));
    let broken = serve(|_, stream| answer(stream, "503 Service Unavailable", b""));
    let away = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    let away = format!("http://{}", away.unwrap());
    let rig = Fixture::new(&[&good, &strict, &broken, &away], 1 << 30, "60s");
    let checks = rig.debuginfod.check().await;
    let [good, strict, broken, away, directory, ..] = &checks[..] else {
        panic!("{checks:?}");
    };
    assert!(
        good.found.ends_with(" answers with HTTP status 404"),
        "{good:?}"
    );
    for ok in [good, directory] {
        assert_eq!(ok.severity(), None, "{ok:?}");
    }
    for (check, fix) in [(strict, "password"), (broken, "log"), (away, "runs")] {
        assert_eq!(check.severity(), Some(Severity::Warning), "{check:?}");
        let problem = check.problem.as_ref().unwrap();
        assert!(problem.fix.contains(fix), "{check:?}");
    }
    assert_eq!(rig.cached(), [""; 0]);
    rig.finish().await;
}

#[tokio::test]
async fn evicts_the_oldest_files() {
    let (bytes, id) = library();
    let length = bytes.len() as u64;
    let url = serve(move |_, stream| answer(stream, "200 OK", &bytes));
    let rig = Fixture::new(&[&url], length + 150, "60s");
    for (name, age) in [
        ("02.debuginfo", 200),
        ("incoming-03", 300),
        ("01.executable", 100),
        ("of-somebody-else", 400),
    ] {
        let file = File::create(rig.directory.path().join("cache").join(name)).unwrap();
        file.set_len(100).unwrap();
        let then = std::time::SystemTime::now() - Duration::from_secs(age);
        file.set_modified(then).unwrap();
    }
    assert!(rig.fetch(&id).await.is_some());
    let mut cached = rig.cached();
    cached.sort();
    let mut expected = [
        "01.executable",
        "of-somebody-else",
        &format!("{id}.debuginfo"),
    ];
    expected.sort_unstable();
    assert_eq!(cached, expected);
    rig.finish().await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_servers() {
    let hangs = serve(|_, stream| std::mem::forget(stream.try_clone()));
    let rig = Fixture::new(&[&hangs], 1 << 30, "1h");
    let request = FileRequest {
        build_id: "0123456789abcdef".into(),
        what: FileKind::Executable,
    };
    assert!(matches!(
        rig.debuginfod.find(&request),
        Fetched::Downloading
    ));
    assert!(rig.debuginfod.is_downloading(&request));
    rig.finish().await;
}

#[test]
fn servers_default_to_the_environment_variable() {
    let new = |options: &str, from_environment: Option<&str>| {
        let config: SymbolizeConfig = load(options).unwrap();
        let telemetry = Arc::new(Telemetry::new(&context("symbolize")));
        let made = Debuginfod::new(
            config.debuginfod.as_ref().unwrap(),
            from_environment,
            telemetry,
        );
        made.map(|made| made.urls)
            .map_err(|error| error.to_string())
    };
    let from_environment = Some("ima:enforcing https://a.example/ http://b.example");
    let both = ["https://a.example/", "http://b.example"].map(Url::from);
    assert_eq!(new("debuginfod:", from_environment).unwrap(), both);
    assert_eq!(
        new("debuginfod: {urls: [http://c.example]}", from_environment).unwrap(),
        [Url::from("http://c.example")]
    );
    let refused = new("debuginfod:", None).unwrap_err();
    assert!(refused.contains("DEBUGINFOD_URLS"), "{refused}");
}
