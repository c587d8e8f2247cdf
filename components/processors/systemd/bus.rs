//! A connection to the bus, or to systemd itself, over which properties of units are asked for.

use std::path::Path;

use profcol_dbus::{Call, Malformed, Message, START, lengths};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

/// A line of the greeting is no longer.
const LINE: u64 = 512;
/// So many messages that nobody asked for may come before an answer.
const STRAY: usize = 64;

pub(super) const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
const SYSTEMD: &str = "org.freedesktop.systemd1";
const UNIT: &str = "org.freedesktop.systemd1.Unit";

/// Which of systemd's sockets it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The bus, which has to know who we are before it passes anything on.
    Bus,
    /// systemd itself.
    Private,
}

pub(super) struct Bus {
    stream: BufReader<UnixStream>,
    serial: u32,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum BusError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("authentication rejected: {0:?}")]
    Refused(String),
    #[error(
        "it hangs up at once, as a bus does that does not know our user, such as one that systemd makes up \
         (`DynamicUser`): give the service a user of its own (`User`, by sysusers.d); {0}"
    )]
    HungUp(std::io::Error),
    #[error("malformed message: {0}")]
    Malformed(#[from] Malformed),
    #[error("the server returned the error {0}")]
    Answer(String),
    #[error("too many unsolicited messages before the reply")]
    Stray,
}

impl Bus {
    pub async fn open(path: &Path, side: Side) -> Result<Self, BusError> {
        let stream = BufReader::new(UnixStream::connect(path).await?);
        let mut bus = Self { stream, serial: 0 };
        bus.authenticate().await?;
        if side == Side::Bus {
            bus.call(&Call {
                destination: "org.freedesktop.DBus",
                path: "/org/freedesktop/DBus",
                interface: "org.freedesktop.DBus",
                member: "Hello",
                argument: None,
            })
            .await
            .map_err(|error| match error {
                BusError::Io(error) => BusError::HungUp(error),
                other => other,
            })?;
        }
        Ok(bus)
    }

    /// All that systemd tells of a unit; of one that it does not know, hardly more than the name.
    pub async fn unit(&mut self, name: &str) -> Result<Message, BusError> {
        self.call(&Call {
            destination: SYSTEMD,
            path: &object(name),
            interface: PROPERTIES,
            member: "GetAll",
            argument: Some(UNIT),
        })
        .await
    }

    /// The kernel tells the other side who we are; a number in the greeting could only be wrong, as it would be in
    /// another user namespace.
    async fn authenticate(&mut self) -> Result<(), BusError> {
        let stream = &mut self.stream;
        stream.write_all(b"\0AUTH EXTERNAL\r\nDATA\r\n").await?;
        for expected in ["DATA", "OK "] {
            let mut line = Vec::new();
            (&mut *stream)
                .take(LINE)
                .read_until(b'\n', &mut line)
                .await?;
            if line.is_empty() {
                return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
            }
            if !line.starts_with(expected.as_bytes()) || !line.ends_with(b"\r\n") {
                let line = String::from_utf8_lossy(&line);
                return Err(BusError::Refused(line.trim_end().to_owned()));
            }
        }
        stream.write_all(b"BEGIN\r\n").await?;
        Ok(())
    }

    async fn call(&mut self, call: &Call<'_>) -> Result<Message, BusError> {
        self.serial += 1;
        let question = call.encode(self.serial);
        self.stream.write_all(&question).await?;
        for _ in 0..STRAY {
            let message = self.receive().await?;
            match message.answers(self.serial) {
                Some(Ok(())) => return Ok(message),
                Some(Err(error)) => return Err(BusError::Answer(error.to_owned())),
                None => {}
            }
        }
        Err(BusError::Stray)
    }

    async fn receive(&mut self) -> Result<Message, BusError> {
        let mut start = [0; START];
        self.stream.read_exact(&mut start).await?;
        let (fields, body) = lengths(&start)?;
        let mut head = start.to_vec();
        self.read(fields, &mut head).await?;
        let mut rest = Vec::new();
        self.read(body, &mut rest).await?;
        Ok(Message::decode(&head, rest)?)
    }

    /// Memory is taken for what came, not for what was announced.
    async fn read(&mut self, length: usize, into: &mut Vec<u8>) -> Result<(), BusError> {
        let mut part = (&mut self.stream).take(length as u64);
        match part.read_to_end(into).await? == length {
            true => Ok(()),
            false => Err(Malformed::Short.into()),
        }
    }
}

/// The path of a unit's object: bytes that are neither letter nor digit are written as `_` and two digits, and so is
/// a digit at the beginning.
pub(super) fn object(unit: &str) -> String {
    let mut path = "/org/freedesktop/systemd1/unit/".to_owned();
    for (position, byte) in unit.bytes().enumerate() {
        let is_plain = match position {
            0 => byte.is_ascii_alphabetic(),
            _ => byte.is_ascii_alphanumeric(),
        };
        match is_plain {
            true => path.push(char::from(byte)),
            false => path.push_str(&format!("_{byte:02x}")),
        }
    }
    path
}
