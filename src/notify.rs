//! Notifies systemd of readiness, status and liveness for units with `Type=notify` (sd_notify(3),
//! sd_watchdog_enabled(3)).
//!
//! A message is one datagram of `NAME=VALUE` lines to the socket in `NOTIFY_SOCKET`.
//!
//! | message | when |
//! |---|---|
//! | `READY=1` | all components have started |
//! | `RELOADING=1`, `MONOTONIC_USEC=` | a reload begins; `READY=1` ends it |
//! | `STATUS=` | at least every ten seconds: received, delivered, waiting and failing data |
//! | `WATCHDOG=1` | with each status, at the interval the unit sets |
//! | `STOPPING=1`, `EXTEND_TIMEOUT_USEC=` | shutdown begins and may take `service::shutdown_timeout` |

use std::convert::Infallible;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use profcol_printable::line;
use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

/// Longest interval between two status messages.
const STATUS_INTERVAL: Duration = Duration::from_secs(10);

/// systemd rejects messages above 4096 bytes.
const MAX_STATUS_BYTES: usize = 2000;

/// Time beyond the shutdown timeout to close servers and files.
const STOP_MARGIN: Duration = Duration::from_secs(5);

/// Notifies the service manager, if there is one.
#[derive(Default)]
pub struct Notifier {
    channel: Option<Channel>,
}

struct Channel {
    socket: UnixDatagram,
    address: SocketAddr,
    /// The watchdog timeout.
    watchdog: Option<Duration>,
}

// === impl Notifier ===

impl Notifier {
    /// Connects to `NOTIFY_SOCKET`; if that is not set, all calls do nothing.
    pub fn from_environment() -> Self {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|it| !it.is_empty()) else {
            return Self::default();
        };
        let variable = |name: &str| std::env::var(name).ok();
        let watchdog = watchdog(
            variable("WATCHDOG_USEC").as_deref(),
            variable("WATCHDOG_PID").as_deref(),
            std::process::id(),
        );
        match Channel::open(&name, watchdog) {
            Ok(channel) => Self {
                channel: Some(channel),
            },
            Err(error) => {
                tracing::warn!(%error, socket = %line(&name.to_string_lossy()), "Failed to open the systemd notification socket.");
                Self::default()
            }
        }
    }

    pub fn ready(&self) {
        self.send("READY=1\nSTATUS=Everything has started.");
    }

    /// Announces a reload.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let microseconds = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        self.send(&format!(
            "RELOADING=1\nMONOTONIC_USEC={microseconds}\nSTATUS=Reloading the configuration."
        ));
    }

    /// The reload has ended; `outcome` becomes the status.
    pub fn reloaded(&self, outcome: &str) {
        let outcome = line(outcome);
        let outcome = shortened(&outcome);
        self.send(&format!("READY=1\nSTATUS={outcome}"));
    }

    /// Announces a shutdown that may take `timeout`.
    pub fn stopping(&self, timeout: Duration) {
        let extended = timeout.saturating_add(STOP_MARGIN).as_micros();
        self.send(&format!(
            "STOPPING=1\nEXTEND_TIMEOUT_USEC={extended}\nSTATUS=Stopping."
        ));
    }

    /// Feeds the watchdog while the runtime is alive: a worker builds the status and the calling task sends it, so a
    /// blocked runtime sends nothing.
    pub async fn watch<S>(&self, prefix: &str, status: impl Fn() -> S) -> Infallible
    where
        S: FnOnce() -> String + Send + 'static,
    {
        let Some(channel) = &self.channel else {
            return std::future::pending().await;
        };
        // Half, as sd_watchdog_enabled(3) recommends.
        let interval = channel.watchdog.map_or(STATUS_INTERVAL, |every| every / 2);
        let mut beat = tokio::time::interval(interval.min(STATUS_INTERVAL));
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut worker = JoinSet::new();
        loop {
            beat.tick().await;
            let status = status();
            worker.spawn(async move { status() });
            if let Some(Ok(status)) = worker.join_next().await {
                let alive = match channel.watchdog {
                    Some(_) => "WATCHDOG=1\n",
                    None => "",
                };
                let status = line(&status);
                let status = shortened(&status);
                self.send(&format!("{alive}STATUS={prefix}{status}"));
            }
        }
    }

    fn send(&self, message: &str) {
        let Some(channel) = &self.channel else {
            return;
        };
        if let Err(error) = channel
            .socket
            .send_to_addr(message.as_bytes(), &channel.address)
        {
            tracing::warn!(%error, "Failed to notify systemd.");
        }
    }
}

impl Channel {
    fn open(name: &OsStr, watchdog: Option<Duration>) -> io::Result<Self> {
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            [b'/', ..] => SocketAddr::from_pathname(name)?,
            _ => {
                return Err(io::Error::new(
                    ErrorKind::Unsupported,
                    "NOTIFY_SOCKET is neither a path nor an abstract name",
                ));
            }
        };
        let socket = UnixDatagram::unbound()?;
        // A full socket must not block the pipelines; the next message supersedes this one.
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            address,
            watchdog,
        })
    }
}

/// The watchdog timeout, if set for this process.
fn watchdog(microseconds: Option<&str>, pid: Option<&str>, own: u32) -> Option<Duration> {
    let is_for_us = pid.is_none_or(|pid| pid.parse() == Ok(own));
    let microseconds = microseconds?.parse().ok().filter(|it| *it > 0)?;
    is_for_us.then(|| Duration::from_micros(microseconds))
}

fn shortened(status: &str) -> &str {
    match status.len() <= MAX_STATUS_BYTES {
        true => status,
        false => &status[..status.floor_char_boundary(MAX_STATUS_BYTES)],
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn received(socket: &UnixDatagram) -> Option<String> {
        let mut message = [0; 4096];
        let size = socket.recv(&mut message).ok()?;
        Some(String::from_utf8(message[..size].to_vec()).unwrap())
    }

    fn pair(watchdog: Option<Duration>) -> (Notifier, UnixDatagram) {
        let name = format!("profcol-test-{}-{watchdog:?}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let supervisor = UnixDatagram::bind_addr(&address).unwrap();
        supervisor
            .set_read_timeout(Some(Duration::from_millis(500)))
            .unwrap();
        let channel = Channel::open(OsStr::new(&format!("@{name}")), watchdog).unwrap();
        let notifier = Notifier {
            channel: Some(channel),
        };
        (notifier, supervisor)
    }

    #[test]
    fn the_watchdog_is_fed_only_while_the_runtime_works() {
        let (notifier, supervisor) = pair(Some(Duration::from_millis(20)));
        let (end, ended) = mpsc::channel::<()>();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (block, blocked) = mpsc::channel::<()>();
        let runs = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .unwrap();
            let handle = runtime.handle().clone();
            std::thread::spawn(move || {
                blocked.recv().unwrap();
                // Blocks the only worker.
                handle.spawn(async move { ended.recv() });
            });
            runtime.block_on(async {
                tokio::select! {
                    never = notifier.watch("", || || "at work".to_owned()) => match never {},
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        });
        assert_eq!(
            received(&supervisor).as_deref(),
            Some("WATCHDOG=1\nSTATUS=at work")
        );
        block.send(()).unwrap();
        let silent = (0..200).any(|_| received(&supervisor).is_none());
        assert!(silent, "sent a status from a blocked runtime");
        end.send(()).unwrap();
        assert!((0..10).any(|_| received(&supervisor).is_some()));
        stop.send(()).unwrap();
        runs.join().unwrap();
    }

    #[test]
    fn ignores_a_watchdog_for_another_process() {
        let second = Some(Duration::from_secs(1));
        for (microseconds, pid, expected) in [
            (Some("1000000"), None, second),
            (Some("1000000"), Some("7"), second),
            (Some("1000000"), Some("8"), None),
            (Some("0"), None, None),
            (Some("x"), None, None),
            (None, Some("7"), None),
        ] {
            assert_eq!(watchdog(microseconds, pid, 7), expected, "{microseconds:?}");
        }
    }

    #[test]
    fn a_long_status_is_truncated() {
        let long = "ä".repeat(MAX_STATUS_BYTES);
        assert_eq!(shortened(&long).len(), MAX_STATUS_BYTES);
        assert_eq!(shortened("short"), "short");
    }

    #[test]
    fn rejects_an_unsupported_address() {
        assert!(Channel::open(OsStr::new("vsock:2:1234"), None).is_err());
    }
}
