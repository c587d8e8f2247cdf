//! What stands in for the bus: it answers as systemd does, or as nobody should.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use profcol_dbus::testkit::{Shown, reply};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

/// What it does once it was asked for a unit.
#[derive(Clone, Debug)]
pub enum Manner {
    Tells(Vec<(&'static str, Shown)>),
    /// An error of this name.
    Refuses(&'static str),
    Hangs,
    /// In the middle of an answer.
    HangsUp,
    /// These bytes instead of an answer.
    Says(Vec<u8>),
    /// As soon as somebody comes, before any greeting.
    Greets(&'static str),
}

pub struct Server {
    folder: tempfile::TempDir,
    pub asked: Arc<AtomicUsize>,
    tasks: JoinSet<()>,
}

impl Server {
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            asked: Arc::default(),
            tasks: JoinSet::new(),
        }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("bus")
    }

    pub fn options(&self, more: &str) -> String {
        let (socket, private) = (self.socket(), self.folder.path().join("private"));
        format!(
            "{{dbus: {{socket: {}, private_socket: {}, timeout: 200ms}}, {more}}}",
            socket.display(),
            private.display()
        )
    }

    pub fn start(&mut self, is_big: bool, manner: Manner) {
        self.start_at("bus", is_big, manner);
    }

    /// systemd itself, which knows nothing of a `Hello`.
    pub fn start_private(&mut self, manner: Manner) {
        self.start_at("private", false, manner);
    }

    fn start_at(&mut self, name: &str, is_big: bool, manner: Manner) {
        let path = self.folder.path().join(name);
        let listener = UnixListener::bind(path).unwrap();
        let asked = Arc::clone(&self.asked);
        let has_hello = name == "bus";
        self.tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (manner, asked) = (manner.clone(), Arc::clone(&asked));
                connections.spawn(async move {
                    // Whoever asks may go away.
                    let _ = serve(stream, is_big, has_hello, &manner, &asked).await;
                });
            }
        });
    }

    /// It goes away, and its socket with it.
    pub async fn stop(&mut self) {
        self.tasks.shutdown().await;
        let _ = std::fs::remove_file(self.socket());
    }
}

async fn serve(
    mut stream: UnixStream,
    is_big: bool,
    has_hello: bool,
    manner: &Manner,
    asked: &AtomicUsize,
) -> std::io::Result<()> {
    if let Manner::Greets(line) = manner {
        stream.write_all(line.as_bytes()).await?;
    }
    read_until(&mut stream, b"\0AUTH EXTERNAL\r\nDATA\r\n").await?;
    stream.write_all(b"DATA\r\nOK 1234\r\n").await?;
    read_until(&mut stream, b"BEGIN\r\n").await?;
    if has_hello {
        let (serial, text) = call(&mut stream).await?;
        assert!(text.contains("Hello"), "{text}");
        // Nobody asked for what comes first.
        stream.write_all(&reply(is_big, None, None, &[])).await?;
        stream
            .write_all(&reply(is_big, Some(serial), None, &[]))
            .await?;
    }
    loop {
        let (serial, text) = call(&mut stream).await?;
        assert!(
            text.contains("GetAll") && text.contains("/systemd1/unit/"),
            "{text}"
        );
        asked.fetch_add(1, Relaxed);
        let answer = match manner {
            Manner::Tells(properties) => reply(is_big, Some(serial), None, properties),
            Manner::Refuses(name) => reply(is_big, Some(serial), Some(name), &[]),
            Manner::Hangs => std::future::pending().await,
            Manner::HangsUp => {
                let mut answer = reply(is_big, Some(serial), None, &[("a", Shown::Number(1))]);
                answer.pop();
                return stream.write_all(&answer).await;
            }
            Manner::Says(bytes) => bytes.clone(),
            Manner::Greets(_) => Vec::new(),
        };
        stream.write_all(&answer).await?;
    }
}

async fn read_until(stream: &mut UnixStream, expected: &[u8]) -> std::io::Result<()> {
    let mut found = vec![0; expected.len()];
    stream.read_exact(&mut found).await?;
    assert_eq!(found, expected);
    Ok(())
}

/// The number of a call, and all of its bytes as text.
async fn call(stream: &mut UnixStream) -> std::io::Result<(u32, String)> {
    let mut start = [0; 16];
    stream.read_exact(&mut start).await?;
    let number = |at: usize| u32::from_le_bytes(start[at..at + 4].try_into().unwrap());
    let rest = number(12).next_multiple_of(8) + number(4);
    let mut bytes = vec![0; rest as usize];
    stream.read_exact(&mut bytes).await?;
    Ok((number(8), String::from_utf8_lossy(&bytes).into_owned()))
}

/// The note that systemd leaves of a unit's run.
/// As systemd does when a run of the unit begins: `began` is in milliseconds since 1970.
pub fn note(folder: &Path, unit: &str, id: &str, began: i64) {
    let note = folder.join(format!("invocation:{unit}"));
    let _ = std::fs::remove_file(&note);
    std::os::unix::fs::symlink(id, &note).unwrap();
    let time = Timespec {
        tv_sec: began / 1000,
        tv_nsec: began % 1000 * 1_000_000,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    utimensat(CWD, note, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}
