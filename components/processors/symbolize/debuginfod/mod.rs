//! Files from debuginfod servers.
//!
//! A thread of its own asks them, for one file at a time: a server may be slow, and no worker waits for it. What is
//! named meanwhile is named by what is there, and once more when the file has come.

mod cache;
#[cfg(test)]
pub(super) mod tests;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::StatusCode;
use http::header::CONTENT_LENGTH;
use profcol_component::{BuildError, Stop};
use profcol_net::{HttpClient, HttpClientSettings, HttpError, is_http_url};
use tokio::runtime::Handle;

use self::cache::Cache;
use super::config::DebuginfodConfig;
use super::telemetry::{Fetch, Telemetry};
use crate::shared::locks::lock;

const USER_AGENT: &str = concat!("profcol/", env!("CARGO_PKG_VERSION"));
/// Files that may wait to be asked for.
const MAX_WAITING: usize = 256;
/// How long a file that no server has is not asked for again.
const ABSENT: Duration = Duration::from_secs(3600);
/// How long a server that failed is left alone, and a file for which one did.
const FAILED: Duration = Duration::from_secs(60);
/// Files of which it is remembered that they are not to be had.
const MAX_REMEMBERED: usize = 4096;
/// What is received between two looks at how much the cache takes.
const STEP: u64 = 16 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum What {
    /// The file with the DWARF of an executable.
    DebugInfo,
    Executable,
}

impl What {
    /// In the URL.
    fn name(self) -> &'static str {
        match self {
            Self::DebugInfo => "debuginfo",
            Self::Executable => "executable",
        }
    }
}

/// A file, by its GNU build id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Wanted {
    pub build_id: Arc<str>,
    pub what: What,
}

/// What can be said of a file at once.
#[derive(Debug)]
pub(super) enum Fetched {
    Here(File),
    Coming,
    Nowhere,
}

enum State {
    Coming,
    NowhereUntil(Instant),
}

pub(super) struct Debuginfod {
    urls: Vec<String>,
    limit: Duration,
    cache: Cache,
    states: Mutex<HashMap<Wanted, State>>,
    /// None once it stops.
    queue: Mutex<Option<SyncSender<Wanted>>>,
    /// The other end, until the thread takes it.
    asked: Mutex<Option<Receiver<Wanted>>>,
    telemetry: Arc<Telemetry>,
}

/// How a server answered.
enum Reply {
    Found,
    Absent,
    /// It has something, which is of no use.
    Useless(String),
    Failed(String),
    /// Everything stops.
    Stopped,
}

impl Debuginfod {
    /// `usual` are the servers of whoever names none: `DEBUGINFOD_URLS`.
    pub fn new(
        config: &DebuginfodConfig,
        usual: Option<&str>,
        telemetry: Arc<Telemetry>,
    ) -> Result<Self, BuildError> {
        let mut urls = config.urls.clone();
        if urls.is_empty() {
            // Beside servers there may be words of elfutils' own, on signatures.
            let words = usual.unwrap_or_default().split_whitespace();
            urls.extend(words.filter(|word| is_http_url(word)).map(str::to_owned));
        }
        if urls.is_empty() {
            let problem = "debuginfod::urls: name a server, or set DEBUGINFOD_URLS";
            return Err(BuildError(problem.into()));
        }
        let (queue, asked) = sync_channel(MAX_WAITING);
        Ok(Self {
            urls,
            limit: config.timeout.into(),
            cache: Cache::new(
                &config.cache_directory,
                config.cache_bytes,
                telemetry.evicted_from_disk.clone(),
            ),
            states: Mutex::default(),
            queue: Mutex::new(Some(queue)),
            asked: Mutex::new(Some(asked)),
            telemetry,
        })
    }

    /// Has the cache ready.
    pub fn begin(&self) -> io::Result<()> {
        self.cache.begin()
    }

    /// The file, where it is in the cache; else the servers are asked, unless they were.
    pub fn find(&self, wanted: &Wanted) -> Fetched {
        // It becomes part of a URL and of a path.
        let id = wanted.build_id.as_bytes();
        let is_hex = id.iter().all(u8::is_ascii_hexdigit);
        if !is_hex || !(8..=128).contains(&id.len()) {
            return Fetched::Nowhere;
        }
        let mut states = lock(&self.states);
        match states.get(wanted) {
            Some(State::Coming) => return Fetched::Coming,
            Some(State::NowhereUntil(until)) if Instant::now() < *until => return Fetched::Nowhere,
            _ => {}
        }
        if let Some(file) = self.cache.open(wanted) {
            states.remove(wanted);
            return Fetched::Here(file);
        }
        if states.len() >= MAX_REMEMBERED {
            states.retain(|_, state| matches!(state, State::Coming));
        }
        let queue = lock(&self.queue);
        let is_sent = queue.as_ref().map(|it| it.try_send(wanted.clone()));
        match is_sent {
            Some(Ok(())) => {
                states.insert(wanted.clone(), State::Coming);
                Fetched::Coming
            }
            _ => {
                self.telemetry.count_fetch(Fetch::Busy);
                let until = Instant::now() + FAILED;
                states.insert(wanted.clone(), State::NowhereUntil(until));
                Fetched::Nowhere
            }
        }
    }

    pub fn is_coming(&self, wanted: &Wanted) -> bool {
        matches!(lock(&self.states).get(wanted), Some(State::Coming))
    }

    /// Nothing is asked for any more.
    pub fn close(&self) {
        lock(&self.queue).take();
    }

    /// Asks for what is wanted, until it is closed.
    pub fn run(&self, runtime: &Handle, stop: &Stop) {
        let Some(asked) = lock(&self.asked).take() else {
            return;
        };
        let mut resting = HashMap::new();
        while let Ok(wanted) = asked.recv() {
            let until = self.ask(&wanted, &mut resting, runtime, stop);
            let mut states = lock(&self.states);
            match until {
                None => states.remove(&wanted),
                Some(until) => states.insert(wanted, State::NowhereUntil(until)),
            };
        }
    }

    /// One server after the other; says how long it need not be tried again, or nothing if the file is there.
    fn ask(
        &self,
        wanted: &Wanted,
        resting: &mut HashMap<usize, Instant>,
        runtime: &Handle,
        stop: &Stop,
    ) -> Option<Instant> {
        let mut patience = ABSENT;
        for (number, server) in self.urls.iter().enumerate() {
            let now = Instant::now();
            if resting.get(&number).is_some_and(|until| now < *until) {
                patience = FAILED;
                continue;
            }
            let reply = runtime.block_on(async {
                tokio::select! {
                    () = stop.cancelled() => Reply::Stopped,
                    reply = tokio::time::timeout(self.limit, self.fetch(server, wanted)) => {
                        let limit = profcol_config::Duration::from(self.limit);
                        let late = |_| Reply::Failed(format!("it took longer than {limit}"));
                        reply.unwrap_or_else(late)
                    }
                }
            });
            let build_id = &wanted.build_id;
            match reply {
                Reply::Found => {
                    self.telemetry.count_fetch(Fetch::Found);
                    return None;
                }
                Reply::Absent => self.telemetry.count_fetch(Fetch::Absent),
                Reply::Useless(reason) => {
                    self.telemetry.count_fetch(Fetch::Refused);
                    tracing::warn!(%server, %build_id, reason, "Rejected a file from a debuginfod server.");
                }
                Reply::Failed(reason) => {
                    self.telemetry.count_fetch(Fetch::Failed);
                    tracing::warn!(%server, reason, "A debuginfod server failed; it is left alone for a minute.");
                    resting.insert(number, Instant::now() + FAILED);
                    patience = FAILED;
                }
                Reply::Stopped => break,
            }
        }
        Some(Instant::now() + patience)
    }

    async fn fetch(&self, server: &str, wanted: &Wanted) -> Reply {
        let (id, what) = (&wanted.build_id, wanted.what.name());
        let url = format!("{}/buildid/{id}/{what}", server.trim_end_matches('/'));
        let settings = HttpClientSettings {
            timeout: self.limit.into(),
            ..HttpClientSettings::default()
        };
        let client = match HttpClient::new(&settings, &url, None, USER_AGENT) {
            Ok(client) => client,
            Err(error) => return Reply::Failed(error.to_string()),
        };
        self.receive(&client, wanted)
            .await
            .unwrap_or_else(|error| Reply::Failed(error.to_string()))
    }

    async fn receive(&self, client: &HttpClient, wanted: &Wanted) -> Result<Reply, FetchError> {
        let mut answer = client.get().await?;
        match answer.status {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Ok(Reply::Absent),
            other => return Ok(Reply::Failed(format!("it answers {other}"))),
        }
        let most = self.cache.most();
        let announced = answer.headers.get(CONTENT_LENGTH);
        let announced = announced.and_then(|it| it.to_str().ok()?.parse::<u64>().ok());
        let too_large = || {
            Ok(Reply::Useless(format!(
                "it is larger than the {most} bytes of cache_bytes"
            )))
        };
        if announced.is_some_and(|it| it > most) {
            return too_large();
        }
        let mut file = self.cache.create()?;
        let (mut received, mut trimmed) = (0, 0);
        while let Some(piece) = answer.next().await {
            let piece = piece?;
            received += piece.len() as u64;
            if received > most {
                return too_large();
            }
            file.write_all(&piece)?;
            if received - trimmed >= STEP {
                self.cache.trim(Some(file.path()))?;
                trimmed = received;
            }
        }
        self.cache.trim(Some(file.path()))?;
        Ok(match self.cache.keep(file, wanted)? {
            true => Reply::Found,
            false => Reply::Useless("it is no ELF file with that build id".into()),
        })
    }
}

/// Why a file could not be received.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("debuginfod::cache_directory: {0}")]
    Disk(#[from] io::Error),
}
