//! Asks systemd for units: from when one is first met of which nothing is known.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use profcol_component::{IntCounter, Stop};
use profcol_dbus::{Malformed, Message, Property};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::bus::{Bus, BusError, Side};
use super::config::DbusConfig;
use super::directory::{Directory, UnitInfo};
use super::runs::{Run, id};

/// After a failure it is asked again at the earliest after this, and doubled with each further one.
const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// Longer descriptions are cut there, in bytes.
const DESCRIPTION: usize = 1024;
/// By these systemd says that it cannot even load such a unit.
const NO_SUCH_UNIT: [&str; 2] = [
    "org.freedesktop.DBus.Error.UnknownObject",
    "org.freedesktop.systemd1.NoSuchUnit",
];

pub(super) struct UnitFetcher<'a> {
    pub config: &'a DbusConfig,
    pub directory: &'a Directory,
    pub failed: &'a IntCounter,
}

impl UnitFetcher<'_> {
    /// Until `stop`. Nobody is asked before there is something to ask for.
    pub async fn run(&self, questions: watch::Receiver<bool>, stop: &Stop) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.fetch_with_backoff(questions) => {}
        }
    }

    async fn fetch_with_backoff(&self, mut questions: watch::Receiver<bool>) {
        let mut wait = INITIAL_BACKOFF;
        let mut last_error = String::new();
        while questions.changed().await.is_ok() {
            let error = match self.fetch().await {
                Ok(()) => {
                    (wait, last_error) = (INITIAL_BACKOFF, String::new());
                    continue;
                }
                Err(error) => error.to_string(),
            };
            // Whether there is such a socket is to be found out, hence no news.
            if Path::new(&self.config.socket).exists() {
                self.failed.inc();
                if last_error != error {
                    let socket = self.config.socket.as_str();
                    tracing::warn!(socket, error, "failed to query systemd; retrying");
                    last_error = error;
                }
            }
            sleep(wait).await;
            wait = (wait * 2).min(MAX_BACKOFF);
        }
    }

    /// For all that is wanted, over a connection that lives no longer than this takes: a bus that goes away meanwhile
    /// takes nothing with it. What is not answered is wanted again with the next batch that has it.
    pub async fn fetch(&self) -> Result<(), BusError> {
        let mut bus = None;
        for unit in self.directory.take_wanted() {
            let bus = match &mut bus {
                Some(bus) => bus,
                None => bus.insert(self.open().await?),
            };
            let answer = self.within(bus.unit(&unit)).await;
            let at = now();
            let told = match answer {
                Ok(message) => unit_info(&message, at)?,
                Err(BusError::Answer(error)) if NO_SUCH_UNIT.contains(&&*error) => UnitInfo {
                    at,
                    ..UnitInfo::default()
                },
                Err(error) => return Err(error),
            };
            self.directory.learn(unit, told);
        }
        Ok(())
    }

    async fn open(&self) -> Result<Bus, BusError> {
        let open = |path, side| self.within(Bus::open(Path::new(path), side));
        let error = match open(self.config.socket.as_str(), Side::Bus).await {
            Ok(bus) => return Ok(bus),
            Err(error) => error,
        };
        let private = self.config.private_socket.as_str();
        if private.is_empty() {
            return Err(error);
        }
        // What is wrong with the bus is of more use to know than why nobody but root may use the other one.
        open(private, Side::Private).await.map_err(|_| error)
    }

    async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, BusError>>,
    ) -> Result<T, BusError> {
        let limit = self.config.timeout.into();
        match timeout(limit, work).await {
            Ok(done) => done,
            Err(_) => Err(std::io::Error::from(ErrorKind::TimedOut).into()),
        }
    }
}

/// In milliseconds since 1970.
pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.unwrap_or_default().as_millis();
    i64::try_from(since).unwrap_or(i64::MAX)
}

fn unit_info(message: &Message, at: i64) -> Result<UnitInfo, Malformed> {
    let mut description = "";
    let (mut is_loaded, mut has_started) = (false, true);
    let (mut digits, mut began, mut ended) = (String::new(), 0, 0);
    message.properties(|name, property| match (name, property) {
        ("Description", Property::Text(text)) => description = text,
        ("LoadState", Property::Text(text)) => is_loaded = text == "loaded",
        ("InvocationID", Property::Bytes(bytes)) => {
            digits = bytes
                .iter()
                .take(16)
                .map(|byte| format!("{byte:02x}"))
                .collect();
        }
        // Tested last before a start. Where a test failed the times are of a start that came to nothing.
        ("ConditionResult" | "AssertResult", Property::Flag(is_good)) => has_started &= is_good,
        ("AssertTimestamp", Property::Number(number)) => began = number,
        ("InactiveEnterTimestamp", Property::Number(number)) => ended = number,
        _ => {}
    })?;
    let milliseconds = |microseconds: u64| i64::try_from(microseconds / 1000).unwrap_or(i64::MAX);
    let run = id(&digits).filter(|_| has_started && began > 0);
    let run = run.map(|id| Run {
        id,
        since: milliseconds(began),
        until: match ended >= began {
            true => milliseconds(ended).saturating_add(1),
            false => at,
        },
    });
    // What cannot be loaded is described by its name.
    let is_described = is_loaded && !description.is_empty();
    let end = description.floor_char_boundary(DESCRIPTION);
    Ok(UnitInfo {
        description: is_described.then(|| Arc::from(description.get(..end).unwrap_or_default())),
        run,
        at,
    })
}
