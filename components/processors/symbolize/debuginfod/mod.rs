//! Files from debuginfod servers.
//!
//! A dedicated thread downloads one file at a time: a server may be slow, and no worker waits for it. Until the file
//! arrives, code is symbolized with what is available, and then again.

mod cache;
mod check;
#[cfg(test)]
pub(super) mod tests;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use http::StatusCode;
use http::header::CONTENT_LENGTH;
use parking_lot::Mutex;
use profcol_component::{BuildError, Stop};
use profcol_config::Url;
use profcol_net::{ClientError, HttpClient, HttpClientSettings, HttpError, is_http_url};
use tokio::runtime::Handle;

use self::cache::Cache;
use super::config::DebuginfodConfig;
use super::telemetry::{Fetch, Telemetry};

const USER_AGENT: &str = concat!("profcol/", env!("CARGO_PKG_VERSION"));
/// Maximum number of queued requests.
const MAX_WAITING: usize = 256;
/// How long a file that no server has is not requested again.
const ABSENT: Duration = Duration::from_secs(3600);
/// How long a failed server is not used, and a file not requested after a failure.
const FAILED: Duration = Duration::from_secs(60);
/// Maximum number of unavailable files remembered.
const MAX_REMEMBERED: usize = 4096;
/// Bytes received between two checks of the cache size.
const STEP: u64 = 16 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum FileKind {
    /// The file with the DWARF of an executable.
    DebugInfo,
    Executable,
}

impl FileKind {
    /// The name in the URL.
    fn name(self) -> &'static str {
        match self {
            Self::DebugInfo => "debuginfo",
            Self::Executable => "executable",
        }
    }
}

/// A file, by its GNU build ID.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileRequest {
    pub build_id: Arc<str>,
    pub what: FileKind,
}

/// The state of a file.
#[derive(Debug)]
pub(super) enum Fetched {
    Here(File),
    Downloading,
    Nowhere,
}

enum State {
    Downloading,
    NowhereUntil(Instant),
}

pub(super) struct Debuginfod {
    urls: Vec<Url>,
    limit: Duration,
    cache: Cache,
    states: Mutex<HashMap<FileRequest, State>>,
    /// `None` after the stop.
    queue: Mutex<Option<SyncSender<FileRequest>>>,
    /// The receiving end, until the thread takes it.
    requests: Mutex<Option<Receiver<FileRequest>>>,
    telemetry: Arc<Telemetry>,
}

/// The answer of a server.
enum Reply {
    Found,
    Absent,
    /// The file is rejected for this reason.
    Unusable(String),
    Failed(FetchError),
    /// profcol is stopping.
    Stopped,
}

impl Debuginfod {
    /// `from_environment` is `DEBUGINFOD_URLS`, for configurations without servers.
    pub fn new(
        config: &DebuginfodConfig,
        from_environment: Option<&str>,
        telemetry: Arc<Telemetry>,
    ) -> Result<Self, BuildError> {
        let mut urls = config.urls.clone();
        if urls.is_empty() {
            // Besides servers, the variable may have elfutils' keywords for signatures.
            let words = from_environment.unwrap_or_default().split_whitespace();
            urls.extend(words.filter(|word| is_http_url(word)).map(Url::from));
        }
        if urls.is_empty() {
            let problem = "debuginfod::urls: name a server, or set DEBUGINFOD_URLS";
            return Err(BuildError::new(problem));
        }
        let (queue, requests) = sync_channel(MAX_WAITING);
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
            requests: Mutex::new(Some(requests)),
            telemetry,
        })
    }

    /// Prepares the cache.
    pub fn begin(&self) -> io::Result<()> {
        self.cache.begin()
    }

    /// The file, if it is cached; otherwise it is requested, unless it was already.
    pub fn find(&self, request: &FileRequest) -> Fetched {
        // The ID becomes part of a URL and of a path.
        let id = request.build_id.as_bytes();
        let is_hex = id.iter().all(u8::is_ascii_hexdigit);
        if !is_hex || !(8..=128).contains(&id.len()) {
            return Fetched::Nowhere;
        }
        let mut states = self.states.lock();
        match states.get(request) {
            Some(State::Downloading) => return Fetched::Downloading,
            Some(State::NowhereUntil(until)) if Instant::now() < *until => return Fetched::Nowhere,
            _ => {}
        }
        if let Some(file) = self.cache.open(request) {
            states.remove(request);
            return Fetched::Here(file);
        }
        if states.len() >= MAX_REMEMBERED {
            states.retain(|_, state| matches!(state, State::Downloading));
        }
        let queue = self.queue.lock();
        let is_sent = queue.as_ref().map(|it| it.try_send(request.clone()));
        match is_sent {
            Some(Ok(())) => {
                states.insert(request.clone(), State::Downloading);
                Fetched::Downloading
            }
            _ => {
                self.telemetry.count_fetch(Fetch::Busy);
                let until = Instant::now() + FAILED;
                states.insert(request.clone(), State::NowhereUntil(until));
                Fetched::Nowhere
            }
        }
    }

    pub fn is_downloading(&self, request: &FileRequest) -> bool {
        matches!(self.states.lock().get(request), Some(State::Downloading))
    }

    /// Accepts no more requests.
    pub fn close(&self) {
        self.queue.lock().take();
    }

    /// Downloads requested files until closed.
    pub fn run(&self, runtime: &Handle, stop: &Stop) {
        let Some(requests) = self.requests.lock().take() else {
            return;
        };
        let mut resting = HashMap::new();
        while let Ok(request) = requests.recv() {
            let until = self.ask(&request, &mut resting, runtime, stop);
            let mut states = self.states.lock();
            match until {
                None => states.remove(&request),
                Some(until) => states.insert(request, State::NowhereUntil(until)),
            };
        }
    }

    /// Tries one server after the other; returns when to retry, or `None` if the file is there.
    fn ask(
        &self,
        request: &FileRequest,
        resting: &mut HashMap<usize, Instant>,
        runtime: &Handle,
        stop: &Stop,
    ) -> Option<Instant> {
        let mut retry_after = ABSENT;
        for (number, server) in self.urls.iter().enumerate() {
            let now = Instant::now();
            if resting.get(&number).is_some_and(|until| now < *until) {
                retry_after = FAILED;
                continue;
            }
            let reply = runtime.block_on(async {
                tokio::select! {
                    () = stop.cancelled() => Reply::Stopped,
                    reply = tokio::time::timeout(self.limit, self.fetch(server, request)) => {
                        reply.unwrap_or_else(|_| Reply::Failed(FetchError::Late(self.limit.into())))
                    }
                }
            });
            let build_id = &request.build_id;
            match reply {
                Reply::Found => {
                    self.telemetry.count_fetch(Fetch::Found);
                    return None;
                }
                Reply::Absent => self.telemetry.count_fetch(Fetch::Absent),
                Reply::Unusable(reason) => {
                    self.telemetry.count_fetch(Fetch::Refused);
                    tracing::warn!(%server, %build_id, reason, "Rejected a file from a debuginfod server.");
                }
                Reply::Failed(error) => {
                    self.telemetry.count_fetch(Fetch::Failed);
                    tracing::warn!(%server, reason = %error, "A debuginfod server failed; pausing requests to it for a minute.");
                    resting.insert(number, Instant::now() + FAILED);
                    retry_after = FAILED;
                }
                Reply::Stopped => break,
            }
        }
        Some(Instant::now() + retry_after)
    }

    async fn fetch(&self, server: &Url, request: &FileRequest) -> Reply {
        let settings = HttpClientSettings {
            timeout: self.limit.into(),
            ..HttpClientSettings::default()
        };
        let url = url_of(server, request);
        let fetched = match HttpClient::new(&settings, url.expose(), None, USER_AGENT) {
            Ok(client) => self.receive(&client, request).await,
            Err(error) => Err(error.into()),
        };
        fetched.unwrap_or_else(Reply::Failed)
    }

    async fn receive(
        &self,
        client: &HttpClient,
        request: &FileRequest,
    ) -> Result<Reply, FetchError> {
        let mut answer = client.get().await?;
        match answer.status {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Ok(Reply::Absent),
            other => return Err(FetchError::Status(other)),
        }
        let max_bytes = self.cache.max_bytes();
        let announced = answer.headers.get(CONTENT_LENGTH);
        let announced = announced.and_then(|it| it.to_str().ok()?.parse::<u64>().ok());
        let too_large = || {
            Ok(Reply::Unusable(format!(
                "it is larger than cache_bytes ({max_bytes} bytes)"
            )))
        };
        if announced.is_some_and(|it| it > max_bytes) {
            return too_large();
        }
        let mut file = self.cache.create()?;
        let (mut received, mut trimmed) = (0, 0);
        while let Some(piece) = answer.next().await {
            let piece = piece?;
            received += piece.len() as u64;
            if received > max_bytes {
                return too_large();
            }
            file.write_all(&piece)?;
            if received - trimmed >= STEP {
                self.cache.trim(Some(file.path()))?;
                trimmed = received;
            }
        }
        self.cache.trim(Some(file.path()))?;
        Ok(match self.cache.keep(file, request)? {
            true => Reply::Found,
            false => Reply::Unusable("it is not an ELF file with that build ID".into()),
        })
    }
}

fn url_of(server: &Url, request: &FileRequest) -> Url {
    let (id, what) = (&request.build_id, request.what.name());
    let server = server.expose().trim_end_matches('/');
    Url::new(format!("{server}/buildid/{id}/{what}"))
}

/// Why a download failed.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("the server answered {0}")]
    Status(StatusCode),
    #[error("it took longer than {0}")]
    Late(profcol_config::Duration),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("debuginfod::cache_directory: {0}")]
    Disk(#[from] io::Error),
}
