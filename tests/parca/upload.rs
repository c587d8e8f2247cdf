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

use crate::Server;
use crate::backend::{Nobody, Serving};
use crate::files::{names, recorded};
use crate::support::{Ended, NOBODY, is_root, path, profcol, run, skip};

/// What the recordings in `parca/offline-v1` and `parca/offline-v2` have, but for the torn one.
const ROWS_V1: i64 = 57 + 59 + 65;
const ROWS_V2: i64 = 40 + 61 + 10 + 48 + 63;
const TORN_V1: &str = "1795255569-319-torn.padata";
const TORN_V2: &str = "1795255519-23212-torn.padata";

fn upload(folder: &Path, to: SocketAddr, options: &[&str]) -> Ended {
    let to = format!("grpc://{to}");
    let arguments = [&["upload", path(folder), "--to", &to], options];
    run(&arguments.concat())
}

fn check(ended: &Ended, code: i32, says: &[&str]) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    for text in says {
        let said = ended.stdout.contains(text) || ended.stderr.contains(text);
        assert!(said, "{text:?} in {ended:?}");
    }
}

fn whole(layout: &str, torn: &str) -> tempfile::TempDir {
    let folder = recorded(layout);
    fs::remove_file(folder.path().join(torn)).unwrap();
    folder
}

#[test]
fn uploads_everything_and_ends() {
    for (layout, torn, rows, told) in [
        (
            "parca/offline-v1",
            TORN_V1,
            ROWS_V1,
            "Uploaded 3 batches, 2 files as a whole.",
        ),
        (
            "parca/offline-v2",
            TORN_V2,
            ROWS_V2,
            "Uploaded 5 batches, 2 files as a whole.",
        ),
    ] {
        let folder = whole(layout, torn);
        let server = Server::new();
        check(&upload(folder.path(), server.address, &[]), 0, &[told]);
        assert_eq!(names(folder.path()), [""; 0]);
        crate::backend::wait_until("all to arrive", || server.total() >= rows);
        assert_eq!(server.total(), rows, "{layout}");
        let nothing = upload(folder.path(), server.address, &[]);
        check(&nothing, 0, &["Uploaded 0 batches, 0 files as a whole."]);
    }
}

#[test]
fn root_uploads_what_another_user_recorded() {
    if !is_root() {
        skip("only root can give files away");
        return;
    }
    let folder = whole("parca/offline-v2", TORN_V2);
    let others = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o700);
    fs::set_permissions(folder.path(), others).unwrap();
    for name in names(folder.path()).iter().map(String::as_str).chain([""]) {
        let path = folder.path().join(name);
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let server = Server::new();
    let said = upload(folder.path(), server.address, &[]);
    check(&said, 0, &["Uploaded 5 batches, 2 files as a whole."]);
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn a_dry_run_says_what_is_there_and_changes_nothing() {
    let folder = recorded("parca/offline-v1");
    let before = names(folder.path());
    let ended = run(&["upload", path(folder.path()), "--dry-run"]);
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
    assert_eq!(names(folder.path()), before);
}

#[test]
fn what_cannot_be_delivered_is_left_and_delivered_the_next_time() {
    let folder = whole("parca/offline-v1", TORN_V1);
    let before = names(folder.path());
    let nobody = Nobody::new();
    let ended = upload(folder.path(), nobody.address, &["--give-up-after", "300ms"]);
    check(
        &ended,
        1,
        &[
            "Uploaded 0 batches, 0 files as a whole.",
            "Left: 1795255549-319.padata.zst: 0 of 1 batches uploaded",
            "Left: 1795255569-319.padata: 0 of 2 batches uploaded",
            "the exporters gave up",
        ],
    );
    assert_eq!(names(folder.path()), before);
    // As if the first of two had been delivered before a crash.
    let note = folder.path().join(".1795255569-319.padata.progress");
    fs::write(note, "1\n").unwrap();
    let server = Server::new();
    let ended = upload(folder.path(), server.address, &[]);
    check(&ended, 0, &["Uploaded 2 batches, 2 files as a whole."]);
    crate::backend::wait_until("all to arrive", || server.total() >= 57 + 65);
    assert_eq!(server.total(), 57 + 65);
    assert_eq!(names(folder.path()), [""; 0]);
}

/// A server that wants a token that nobody has; it notes what headers it gets.
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
fn what_is_refused_for_ever_stays_and_may_be_offered_again() {
    let folder = whole("parca/offline-v1", TORN_V1);
    let before = names(folder.path());
    let seen = Closed::default();
    let closed = Serving::new(seen.clone());
    let token = folder.path().join("token");
    fs::write(&token, "${secret}\n").unwrap();
    let headers = [
        "--bearer-token-file",
        path(&token),
        "--header",
        "x-tenant=$HOME",
    ];
    let ended = upload(folder.path(), closed.address, &headers);
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
            "2 files were not delivered as a whole",
        ],
    );
    drop(closed);
    let left = names(folder.path()).into_iter();
    let left: Vec<String> = left.filter(|name| !name.starts_with('.')).collect();
    assert_eq!(left, before);

    let server = Server::new();
    let ended = upload(folder.path(), server.address, &["--keep"]);
    check(&ended, 0, &["Uploaded 3 batches, 2 files as a whole."]);
    crate::backend::wait_until("all to arrive", || server.total() >= ROWS_V1);
    // What is kept is marked, and not sent again.
    let again = upload(folder.path(), server.address, &[]);
    check(&again, 0, &["Uploaded 0 batches"]);
    assert_eq!(server.total(), ROWS_V1);
    let told = run(&["upload", path(folder.path()), "--dry-run"]);
    check(&told, 0, &["57 rows", "; uploaded, and kept"]);
}

/// What answers every connection as a web server does that speaks no HTTP/2.
fn web_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            // Whoever went away already gets no answer.
            let _ = connection.read(&mut [0; 1024]);
            let _ = connection.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
        }
    });
    address
}

#[test]
fn says_once_what_keeps_it_from_uploading() {
    let folder = whole("parca/offline-v1", TORN_V1);
    let before = names(folder.path());
    let nobody = Nobody::new();
    let closed = Serving::new(Closed::default());
    let web_server = web_server();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap();
    // No name is so long, which needs no name server to be known.
    let no_name = "x".repeat(64);
    for (to, reason) in [
        (
            format!("grpc://{}", nobody.address),
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
            "has not answered for 3 seconds; check the address",
        ),
    ] {
        let arguments = ["upload", path(folder.path()), "--to", &to];
        let ended = run(&[&arguments[..], &["--give-up-after", "2s"]].concat());
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert_eq!(ended.stderr.matches(reason).count(), 1, "{to}: {ended:?}");
        for wrong in ["Dropping", "no more retries left"] {
            assert!(!ended.stderr.contains(wrong), "{to}: {ended:?}");
        }
        let left = names(folder.path()).into_iter();
        let left: Vec<String> = left.filter(|name| !name.starts_with('.')).collect();
        assert_eq!(left, before);
    }
}

#[test]
fn a_signal_ends_it_and_what_is_left_is_told() {
    let folder = whole("parca/offline-v1", TORN_V1);
    // It takes connections, and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("grpc://{}", silent.local_addr().unwrap());
    let command = profcol(&["upload", path(folder.path()), "--to", &to])
        .args(["--set", "service.shutdown_timeout=500ms"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _connection = silent.accept().unwrap();
    let told = Command::new("kill").arg(command.id().to_string()).status();
    assert!(told.unwrap().success());
    let output = command.wait_with_output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.contains("Left: 1795255569-319.padata: 0 of 2"),
        "{said}"
    );
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.ends_with("Error: 2 files were not uploaded as a whole\n"),
        "{said}"
    );
    assert!(!said.contains("Dropping"), "{said}");
    assert_eq!(names(folder.path()).len(), 2);
}

#[test]
fn what_cannot_be_read_is_left_under_another_name() {
    let folder = recorded("parca/offline-v1");
    let server = Server::new();
    let ended = upload(folder.path(), server.address, &[]);
    let damaged = format!("{TORN_V1}.damaged");
    check(
        &ended,
        1,
        &[
            "Uploaded 4 batches, 2 files as a whole.",
            &format!("Left: {damaged}: not everything in it can be read"),
            "the file ends at byte 71333, within batch 2 of 2",
        ],
    );
    assert_eq!(names(folder.path()), [damaged]);
}

#[test]
fn wrong_command_lines_are_told() {
    let check = |arguments: &[&str], says: &str| {
        let ended = run(&[&["upload"], arguments].concat());
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(says), "{says:?} in {ended:?}");
    };
    check(&["."], "--to <SERVER>");
    check(
        &[".", "--to", "http://parca:7070"],
        "\"http\" is not a scheme of a Parca server",
    );
    check(&[".", "--to", "grpc://"], "it names no host");
    check(
        &[".", "--to", "grpcs://p:1", "--insecure"],
        "--insecure is plaintext",
    );
    check(
        &[".", "--to", "p:1", "--header", "name"],
        "has to be name=value",
    );
    check(
        &[".", "--to", "p:1", "--give-up-after", "soon"],
        "invalid duration",
    );
}
