//! `profcol upload`.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use ::http::HeaderMap;
use bytes::Bytes;
use profcol_net::grpc::{Code, Status};
use profcol_net::{GrpcRequest, GrpcService};
use profcol_test_harness::backend::{ClosedPort, Serving, wait_until};
use profcol_test_harness::support::{Ended, NOBODY, is_root, path, profcol, run, skip};

use crate::Server;
use crate::files::{names, recorded};

/// The rows of the recordings in `parca/offline-v1` and `parca/offline-v2`, without the torn ones.
const ROWS_V1: i64 = 57 + 59 + 65;
const ROWS_V2: i64 = 40 + 61 + 10 + 48 + 63;
const TORN_V1: &str = "1795255569-319-torn.padata";
const TORN_V2: &str = "1795255519-23212-torn.padata";

fn upload(directory: &Path, to: SocketAddr, options: &[&str]) -> Ended {
    let to = format!("grpc://{to}");
    let arguments = [&["upload", path(directory), "--to", &to], options];
    run(&arguments.concat())
}

fn check(ended: &Ended, code: i32, says: &[&str]) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    for text in says {
        let is_printed = ended.stdout.contains(text) || ended.stderr.contains(text);
        assert!(is_printed, "{text:?} in {ended:?}");
    }
}

fn whole(layout: &str, torn: &str) -> tempfile::TempDir {
    let directory = recorded(layout);
    fs::remove_file(directory.path().join(torn)).unwrap();
    directory
}

#[test]
fn uploads_everything_and_exits() {
    for (layout, torn, rows, summary) in [
        (
            "parca/offline-v1",
            TORN_V1,
            ROWS_V1,
            "Uploaded 3 batches, 2 complete files.",
        ),
        (
            "parca/offline-v2",
            TORN_V2,
            ROWS_V2,
            "Uploaded 5 batches, 2 complete files.",
        ),
    ] {
        let directory = whole(layout, torn);
        let server = Server::new();
        check(
            &upload(directory.path(), server.address, &[]),
            0,
            &[summary],
        );
        assert_eq!(names(directory.path()), [""; 0]);
        wait_until("all to arrive", || server.total() >= rows);
        assert_eq!(server.total(), rows, "{layout}");
        let nothing = upload(directory.path(), server.address, &[]);
        check(&nothing, 0, &["Uploaded 0 batches, 0 complete files."]);
    }
}

#[test]
fn root_uploads_recordings_of_another_user() {
    if !is_root() {
        skip("only root can give files away");
        return;
    }
    let directory = whole("parca/offline-v2", TORN_V2);
    let others = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o700);
    fs::set_permissions(directory.path(), others).unwrap();
    for name in names(directory.path())
        .iter()
        .map(String::as_str)
        .chain([""])
    {
        let path = directory.path().join(name);
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let server = Server::new();
    let ended = upload(directory.path(), server.address, &[]);
    check(&ended, 0, &["Uploaded 5 batches, 2 complete files."]);
    assert_eq!(names(directory.path()), [""; 0]);
}

#[test]
fn a_dry_run_lists_recordings_and_changes_nothing() {
    let directory = recorded("parca/offline-v1");
    let before = names(directory.path());
    let ended = run(&["upload", path(directory.path()), "--dry-run"]);
    check(
        &ended,
        0,
        &[
            "1795255549-319.padata.zst: 6575 bytes, 57 rows, 2026-11-21 10:06:01Z to 2026-11-21 10:06:05Z; 0 of 1 batches uploaded\n",
            "1795255569-319-torn.padata: 71333 bytes, 59 rows,",
            "damaged: the file ends at byte 71333, within batch 2 of 2\n",
            ": 3 files, 184908 bytes, 240 rows, 2026-11-21 10:06:01Z to 2026-11-21 10:06:15Z\n",
        ],
    );
    assert_eq!(names(directory.path()), before);
}

#[test]
fn undelivered_recordings_stay_and_are_delivered_next_time() {
    let directory = whole("parca/offline-v1", TORN_V1);
    let before = names(directory.path());
    let closed = ClosedPort::reserve();
    let ended = upload(
        directory.path(),
        closed.address,
        &["--give-up-after", "300ms"],
    );
    check(
        &ended,
        1,
        &[
            "Uploaded 0 batches, 0 complete files.",
            "Left: 1795255549-319.padata.zst: 0 of 1 batches uploaded",
            "Left: 1795255569-319.padata: 0 of 2 batches uploaded",
            "the exporters gave up",
        ],
    );
    assert_eq!(names(directory.path()), before);
    // The state after a crash following the first of two batches.
    let note = directory.path().join(".1795255569-319.padata.progress");
    fs::write(note, "1\n").unwrap();
    let server = Server::new();
    let ended = upload(directory.path(), server.address, &[]);
    check(&ended, 0, &["Uploaded 2 batches, 2 complete files."]);
    wait_until("all to arrive", || server.total() >= 57 + 65);
    assert_eq!(server.total(), 57 + 65);
    assert_eq!(names(directory.path()), [""; 0]);
}

/// A server that rejects every token, and records the headers.
#[derive(Clone, Default)]
struct Closed(Arc<Mutex<HeaderMap>>);

impl GrpcService for Closed {
    fn admit(&self, _: &str, headers: &HeaderMap) -> Result<(), Status> {
        *self.0.lock().unwrap() = headers.clone();
        Err(Status::new(Code::Unauthenticated, "no such token"))
    }

    async fn call(&self, _: GrpcRequest) -> Result<Bytes, Status> {
        Ok(Bytes::new())
    }
}

#[test]
fn permanently_refused_recordings_stay_and_can_be_retried() {
    let directory = whole("parca/offline-v1", TORN_V1);
    let before = names(directory.path());
    let seen = Closed::default();
    let closed = Serving::new(seen.clone());
    let token = directory.path().join("token");
    fs::write(&token, "${secret}\n").unwrap();
    let headers = [
        "--bearer-token-file",
        path(&token),
        "--header",
        "x-tenant=$HOME",
    ];
    let ended = upload(directory.path(), closed.address, &headers);
    fs::remove_file(&token).unwrap();
    let seen = seen.0.lock().unwrap().clone();
    assert_eq!(seen["authorization"], "Bearer ${secret}");
    assert_eq!(seen["x-tenant"], "$HOME");
    check(
        &ended,
        1,
        &[
            "Left: 1795255549-319.padata.zst: 0 of 1 batches uploaded, 1 refused by the server",
            "Left: 1795255569-319.padata: 0 of 2 batches uploaded, 2 refused by the server",
            "no such token",
            "2 files were not fully delivered",
        ],
    );
    drop(closed);
    let left = names(directory.path()).into_iter();
    let left: Vec<String> = left.filter(|name| !name.starts_with('.')).collect();
    assert_eq!(left, before);

    let server = Server::new();
    let ended = upload(directory.path(), server.address, &["--keep"]);
    check(&ended, 0, &["Uploaded 3 batches, 2 complete files."]);
    wait_until("all to arrive", || server.total() >= ROWS_V1);
    // Kept recordings are marked, and not sent again.
    let again = upload(directory.path(), server.address, &[]);
    check(&again, 0, &["Uploaded 0 batches"]);
    assert_eq!(server.total(), ROWS_V1);
    let listing = run(&["upload", path(directory.path()), "--dry-run"]);
    check(&listing, 0, &["57 rows", "; uploaded, and kept"]);
}

/// Responds to every connection like a web server without HTTP/2.
fn web_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            // The client may have disconnected.
            let _ = connection.read(&mut [0; 1024]);
            let _ = connection.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
        }
    });
    address
}

#[test]
fn reports_an_upload_error_once() {
    let directory = whole("parca/offline-v1", TORN_V1);
    let before = names(directory.path());
    let closed_port = ClosedPort::reserve();
    let closed = Serving::new(Closed::default());
    let web_server = web_server();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap();
    // The name is too long, so it fails without a DNS query.
    let no_name = "x".repeat(64);
    for (to, reason) in [
        (
            format!("grpc://{}", closed_port.address),
            "connection refused; check that the server runs and listens on that address",
        ),
        (
            format!("grpcs://{web_server}"),
            "if the server does not use TLS, use grpc:// or --insecure",
        ),
        (
            format!("grpc://{web_server}"),
            "the server did not respond over HTTP/2: check that the port serves gRPC",
        ),
        (format!("grpc://{no_name}:7070"), "failed to look up xxxx"),
        (format!("grpc://{}", closed.address), "no such token"),
        (
            format!("grpc://{silent}"),
            "for 3 seconds; check the address",
        ),
    ] {
        let arguments = ["upload", path(directory.path()), "--to", &to];
        let ended = run(&[&arguments[..], &["--give-up-after", "2s"]].concat());
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert_eq!(ended.stderr.matches(reason).count(), 1, "{to}: {ended:?}");
        for wrong in ["Dropping", "no more retries left"] {
            assert!(!ended.stderr.contains(wrong), "{to}: {ended:?}");
        }
        let left = names(directory.path()).into_iter();
        let left: Vec<String> = left.filter(|name| !name.starts_with('.')).collect();
        assert_eq!(left, before);
    }
}

#[test]
fn a_signal_stops_it_and_it_reports_what_is_left() {
    let directory = whole("parca/offline-v1", TORN_V1);
    // It accepts connections, and never responds.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("grpc://{}", silent.local_addr().unwrap());
    let command = profcol(&["upload", path(directory.path()), "--to", &to])
        .args(["--set", "service.shutdown_timeout=500ms"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _connection = silent.accept().unwrap();
    let killed = Command::new("kill").arg(command.id().to_string()).status();
    assert!(killed.unwrap().success());
    let output = command.wait_with_output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(
        stdout.contains("Left: 1795255569-319.padata: 0 of 2"),
        "{stdout}"
    );
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.ends_with("Error: 2 files were not uploaded completely\n"),
        "{stderr}"
    );
    assert!(!stderr.contains("Dropping"), "{stderr}");
    assert_eq!(names(directory.path()).len(), 2);
}

#[test]
fn unreadable_recordings_are_renamed() {
    let directory = recorded("parca/offline-v1");
    let server = Server::new();
    let ended = upload(directory.path(), server.address, &[]);
    let damaged = format!("{TORN_V1}.damaged");
    check(
        &ended,
        1,
        &[
            "Uploaded 4 batches, 2 complete files.",
            &format!("Left: {damaged}: partly unreadable"),
            "the file ends at byte 71333, within batch 2 of 2",
        ],
    );
    assert_eq!(names(directory.path()), [damaged]);
}

#[test]
fn reports_wrong_command_lines() {
    let check = |arguments: &[&str], says: &str| {
        let ended = run(&[&["upload"], arguments].concat());
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(says), "{says:?} in {ended:?}");
    };
    check(&["."], "--to <SERVER>");
    check(
        &[".", "--to", "http://parca:7070"],
        "unsupported scheme \"http\"",
    );
    check(&[".", "--to", "grpc://"], "host is missing");
    check(
        &[".", "--to", "grpcs://p:1", "--insecure"],
        "--insecure means plaintext",
    );
    check(
        &[".", "--to", "p:1", "--header", "name"],
        "must be name=value",
    );
    check(
        &[".", "--to", "p:1", "--give-up-after", "soon"],
        "invalid duration",
    );
}
