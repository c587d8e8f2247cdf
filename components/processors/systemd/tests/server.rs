//! What stands in for the bus: it answers as systemd does, or as nobody should.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

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

/// A property.
#[derive(Clone, Debug)]
pub enum Shown {
    Text(&'static str),
    Flag(bool),
    Number(u64),
    Bytes(Vec<u8>),
    /// Two texts and a number in a structure, in a list: as conditions are told.
    Nested,
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

/// A message of either order of bytes: an answer, an error, or without a number a signal.
pub fn reply(
    is_big: bool,
    to: Option<u32>,
    error: Option<&str>,
    properties: &[(&str, Shown)],
) -> Vec<u8> {
    let new = || Bytes {
        bytes: Vec::new(),
        is_big,
    };
    let mut body = new();
    body.number(0);
    body.pad(8);
    let begin = body.bytes.len();
    for (name, value) in properties {
        body.pad(8);
        body.text(name);
        value.put(&mut body);
    }
    let length = (body.bytes.len() - begin) as u32;
    body.patch(0, length);

    let kind = match (to, error) {
        (None, _) => 4,
        (_, Some(_)) => 3,
        _ => 2,
    };
    let mut message = new();
    let order = if is_big { b'B' } else { b'l' };
    message.bytes.extend([order, kind, 1, 1]);
    message.number(body.bytes.len() as u32);
    message.number(77);
    message.number(0);
    if let Some(to) = to {
        message.field(5, "u");
        message.number(to);
    }
    if let Some(error) = error {
        message.field(4, "s");
        message.text(error);
    }
    // One of a number that nobody knows yet.
    message.field(99, "a(sv)");
    message.number(0);
    message.pad(8);
    message.field(8, "g");
    message.signature("a{sv}");
    let length = (message.bytes.len() - 16) as u32;
    message.patch(12, length);
    message.pad(8);
    message.bytes.extend(body.bytes);
    message.bytes
}

impl Shown {
    fn put(&self, bytes: &mut Bytes) {
        match self {
            Self::Text(text) => {
                bytes.signature("s");
                bytes.text(text);
            }
            Self::Flag(flag) => {
                bytes.signature("b");
                bytes.number(u32::from(*flag));
            }
            Self::Number(number) => {
                bytes.signature("t");
                bytes.pad(8);
                bytes.bytes.extend(match bytes.is_big {
                    true => number.to_be_bytes(),
                    false => number.to_le_bytes(),
                });
            }
            Self::Bytes(value) => {
                bytes.signature("ay");
                bytes.number(value.len() as u32);
                bytes.bytes.extend(value);
            }
            Self::Nested => {
                bytes.signature("(sa(sv)qv)");
                bytes.pad(8);
                bytes.text("one");
                bytes.number(0);
                bytes.pad(8);
                bytes.pad(2);
                bytes.bytes.extend([1, 1]);
                bytes.signature("(ynd)");
                bytes.pad(8);
                bytes.bytes.push(7);
                bytes.pad(2);
                bytes.bytes.extend([1, 1]);
                bytes.pad(8);
                bytes.bytes.extend([0; 8]);
            }
        }
    }
}

struct Bytes {
    bytes: Vec<u8>,
    is_big: bool,
}

impl Bytes {
    fn pad(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    fn number(&mut self, number: u32) {
        self.pad(4);
        self.bytes.extend([0; 4]);
        self.patch(self.bytes.len() - 4, number);
    }

    fn patch(&mut self, at: usize, number: u32) {
        let number = match self.is_big {
            true => number.to_be_bytes(),
            false => number.to_le_bytes(),
        };
        self.bytes[at..at + 4].copy_from_slice(&number);
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u32);
        self.bytes.extend(text.bytes());
        self.bytes.push(0);
    }

    fn signature(&mut self, signature: &str) {
        self.bytes.push(signature.len() as u8);
        self.bytes.extend(signature.bytes());
        self.bytes.push(0);
    }

    fn field(&mut self, number: u8, signature: &str) {
        self.pad(8);
        self.bytes.push(number);
        self.signature(signature);
    }
}

/// The note that systemd leaves of a unit's run.
pub fn note(folder: &Path, unit: &str, id: &str) {
    let note = folder.join(format!("invocation:{unit}"));
    let _ = std::fs::remove_file(&note);
    std::os::unix::fs::symlink(id, note).unwrap();
}
