//! The dialogue about one executable, from the question whether it is wanted to its end.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use profcol_component::{BuildId, Executable};
use profcol_net::grpc::{Code, Status};
use profcol_net::{
    Compression, GrpcCall, GrpcClient, GrpcStream, HttpClient, HttpClientSettings, HttpError,
    Message,
};
use profcol_parca::debuginfo::{
    BuildIdKind, Decision, IN_PROGRESS, INITIATE_UPLOAD, Instructions, MARK_UPLOAD_FINISHED,
    SHOULD_INITIATE_UPLOAD, Subject, UPLOAD, chunk,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::capacity::Capacity;
use super::lock;
use super::pace::Budget;
use super::reading::{Planned, Reading, Settings, Skipped};
use crate::shared::otlp::USER_AGENT;

/// How long a question may take.
const ASKING: Duration = Duration::from_secs(30);
/// How often the end of an upload is told, since without it all of it was for nothing.
const TELLING: u32 = 4;
/// What an upload to a signed URL may take longer than its pace.
const SLACK: Duration = Duration::from_secs(60);
/// The status of an upload that ended here, which says nothing of the server.
const NOT_READ: Code = Code::Aborted;
/// The server takes none that are shorter.
const SHORTEST_ID: usize = 3;

/// What became of a try.
#[derive(Debug)]
pub enum Ended {
    Uploaded(Planned),
    /// The server has it, or can get it.
    There {
        reason: String,
    },
    InProgress,
    /// The server never wants it.
    Refused {
        reason: String,
    },
    Skipped(Skipped),
    /// It was begun and did not come to its end.
    Broken(Broken),
    /// The server could not be asked.
    Away(Status),
    /// The server takes no debuginfo.
    NoService,
}

/// An upload that broke.
#[derive(Debug)]
pub struct Broken {
    pub size: u64,
    pub sent: u64,
    pub took: Duration,
    pub reason: String,
}

pub struct Uploader {
    pub client: GrpcClient,
    pub settings: Settings,
    /// For uploads over gRPC.
    pub timeout: Duration,
    pub budget: Mutex<Budget>,
    pub capacity: Mutex<Capacity>,
    /// The server gives signed URLs, to which an upload may take its time.
    pub gives_urls: AtomicBool,
}

impl Uploader {
    pub async fn upload(&self, executable: Executable) -> Ended {
        self.try_upload(executable)
            .await
            .unwrap_or_else(|ended| ended)
    }

    /// Every end but the good one is an error, so that each step can end it.
    async fn try_upload(&self, executable: Executable) -> Result<Ended, Ended> {
        let (build_id, hash) = (executable.build_id.clone(), executable.hash.clone());
        let subject = Subject {
            build_id: build_id.text(),
            kind: match build_id {
                BuildId::Gnu(_) => BuildIdKind::Gnu,
                BuildId::Hash(_) => BuildIdKind::Hash,
            },
            hash: &hash,
        };
        if subject.build_id.len() < SHORTEST_ID {
            let reason = "the build id is too short".to_owned();
            return Err(Ended::Refused { reason });
        }
        self.ask(subject).await?;
        let settings = Settings {
            fit: (!self.gives_urls.load(Relaxed)).then(|| lock(&self.capacity).fit()),
            ..self.settings.clone()
        };
        let mut reading = Reading::plan(executable, settings)
            .await
            .map_err(Ended::Skipped)?;
        let instructions = self.initiate(subject, reading.planned().size).await?;
        let sent = match instructions.strategy {
            Instructions::BY_GRPC => self.by_grpc(&instructions, &mut reading).await,
            Instructions::BY_SIGNED_URL => {
                self.gives_urls.store(true, Relaxed);
                self.by_url(&instructions, &mut reading).await
            }
            other => {
                let reason = format!("the server requested the unknown upload strategy {other}");
                return Err(Ended::Refused { reason });
            }
        };
        let planned = reading.planned();
        match (reading.end().await, sent) {
            // That is the cause of everything else.
            (Some(Err(skipped)), _) => return Err(Ended::Skipped(skipped)),
            (_, Err(broken)) => return Err(Ended::Broken(broken)),
            (_, Ok(())) => {}
        }
        self.finish(&instructions, planned.size).await?;
        Ok(Ended::Uploaded(planned))
    }

    async fn ask(&self, subject: Subject<'_>) -> Result<(), Ended> {
        let answer = self.call(SHOULD_INITIATE_UPLOAD, subject.should_initiate_upload());
        let answer = answer.await.map_err(|status| match status.code {
            Code::Unimplemented => Ended::NoService,
            _ => refusal(status),
        })?;
        let decision = Decision::read(&answer).map_err(|error| garbage(&error))?;
        match decision {
            Decision { wants_it: true, .. } => Ok(()),
            Decision { reason, .. } if reason == IN_PROGRESS => Err(Ended::InProgress),
            Decision { reason, .. } => Err(Ended::There { reason }),
        }
    }

    async fn initiate(&self, subject: Subject<'_>, size: u64) -> Result<Instructions, Ended> {
        let answer = self.call(INITIATE_UPLOAD, subject.initiate_upload(size));
        let answer = answer.await.map_err(|status| match status.code {
            // Somebody else began, or has it done: the next question tells which.
            Code::FailedPrecondition => Ended::InProgress,
            Code::AlreadyExists => Ended::There {
                reason: status.message,
            },
            _ => refusal(status),
        })?;
        let instructions = Instructions::read(&answer).map_err(|error| garbage(&error))?;
        let reason = || "the server sent no upload instructions".to_owned();
        instructions.ok_or_else(|| Ended::Refused { reason: reason() })
    }

    async fn by_grpc(
        &self,
        instructions: &Instructions,
        reading: &mut Reading,
    ) -> Result<(), Broken> {
        let mut attempt = Attempt::of(reading);
        let pace = lock(&self.budget).pace(attempt.size, Some(self.timeout), Instant::now());
        let chunks = reading.start(pace);
        let sending = self.send(instructions, chunks, attempt.size, &mut attempt.sent);
        let outcome = timeout(self.timeout, sending).await;
        let took = attempt.begin.elapsed();
        let mut capacity = lock(&self.capacity);
        match outcome {
            Ok(Ok(())) => {
                capacity.ended(attempt.size, took);
                Ok(())
            }
            Ok(Err(status)) => {
                if status.code != NOT_READ {
                    capacity.broke(attempt.sent, took, Some(&status));
                }
                Err(attempt.broken(status.to_string()))
            }
            Err(_) => {
                capacity.broke(attempt.sent, took, None);
                let reason = "the upload exceeded `debuginfo::timeout`";
                Err(attempt.broken(reason.to_owned()))
            }
        }
    }

    async fn send(
        &self,
        instructions: &Instructions,
        mut chunks: mpsc::Receiver<Bytes>,
        size: u64,
        sent: &mut u64,
    ) -> Result<(), Status> {
        let mut stream = self
            .client
            .stream(UPLOAD, HeaderMap::new(), Some(self.timeout))
            .await?;
        stream.send(instructions.info(), false).await?;
        // One is held back, since the last one has to say so.
        let mut held: Option<Bytes> = None;
        while let Some(next) = chunks.recv().await {
            let Some(data) = held.replace(next) else {
                continue;
            };
            self.send_chunk(&mut stream, &data, false).await?;
            *sent += data.len() as u64;
        }
        if let Some(data) = held {
            if *sent + (data.len() as u64) < size {
                // To end the call well would say that this is all of it.
                let message = "the file was not read completely";
                return Err(Status::new(NOT_READ, message));
            }
            self.send_chunk(&mut stream, &data, true).await?;
            *sent += data.len() as u64;
        }
        while stream.receive().await?.is_some() {}
        Ok(())
    }

    async fn send_chunk(
        &self,
        stream: &mut GrpcStream,
        data: &[u8],
        is_last: bool,
    ) -> Result<(), Status> {
        let message = chunk(data);
        let sending = async {
            stream.ready().await?;
            stream.send(message, is_last).await
        };
        if let Err(broken) = sending.await {
            // A server that refuses an upload does not wait for its end, and says why.
            return Err(stream.receive().await.err().unwrap_or(broken));
        }
        lock(&self.budget).spend(data.len() as u64, Instant::now());
        Ok(())
    }

    async fn by_url(
        &self,
        instructions: &Instructions,
        reading: &mut Reading,
    ) -> Result<(), Broken> {
        let mut attempt = Attempt::of(reading);
        let size = attempt.size;
        let now = Instant::now();
        let pace = lock(&self.budget).pace(size, None, now);
        let needed = pace.map_or(Duration::ZERO, |pace| pace.due(size) - now);
        let settings = HttpClientSettings {
            timeout: (2 * needed + SLACK).into(),
            compression: Compression::None,
            ..HttpClientSettings::default()
        };
        // Whoever has the URL may write there: no message says it.
        let client = HttpClient::new(&settings, &instructions.signed_url, None, USER_AGENT);
        let Ok(client) = client else {
            let reason = "the server sent an invalid signed URL";
            return Err(attempt.broken(reason.to_owned()));
        };
        let chunks = reading.start(pace);
        let answer = client.put(size, chunks).await;
        let outcome = match answer {
            Ok(answer) if answer.status.is_success() => Ok(()),
            Ok(answer) => Err(format!("the signed URL returned {}", answer.status)),
            Err(HttpError::Timeout { limit, .. }) => {
                let limit = profcol_config::Duration::from(limit);
                Err(format!("the upload exceeded {limit}"))
            }
            Err(HttpError::Broken { error, .. }) => Err(error),
            Err(HttpError::Connect(error)) => Err(error.to_string()),
            Err(HttpError::Auth(error)) => Err(error.to_string()),
        };
        lock(&self.budget).spend(size, now);
        attempt.sent = size;
        outcome.map_err(|reason| attempt.broken(reason))
    }

    async fn finish(&self, instructions: &Instructions, bytes: u64) -> Result<(), Ended> {
        let begin = Instant::now();
        let mut wait = Duration::from_secs(1);
        for round in 1.. {
            let answer = self.call(MARK_UPLOAD_FINISHED, instructions.mark_upload_finished());
            let Err(status) = answer.await else {
                break;
            };
            if round == TELLING || !matches!(refusal(status.clone()), Ended::Away(_)) {
                return Err(Ended::Broken(Broken {
                    size: bytes,
                    sent: bytes,
                    took: begin.elapsed(),
                    reason: format!("failed to mark the upload as finished: {status}"),
                }));
            }
            sleep(wait).await;
            wait *= 2;
        }
        Ok(())
    }

    async fn call(&self, path: &'static str, message: Bytes) -> Result<Bytes, Status> {
        let call = GrpcCall {
            path,
            message: &Message::from(message),
            headers: HeaderMap::new(),
            timeout: Some(ASKING),
        };
        self.client.unary(call).await.map(|reply| reply.message)
    }
}

/// An upload that has begun.
struct Attempt {
    size: u64,
    sent: u64,
    begin: Instant,
}

impl Attempt {
    fn of(reading: &Reading) -> Self {
        Self {
            size: reading.planned().size,
            sent: 0,
            begin: Instant::now(),
        }
    }

    fn broken(&self, reason: String) -> Broken {
        Broken {
            size: self.size,
            sent: self.sent,
            took: self.begin.elapsed(),
            reason,
        }
    }
}

/// What a status of a question means: of what was asked, or of the server's state.
fn refusal(status: Status) -> Ended {
    match status.code {
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented => Ended::Refused {
            reason: status.to_string(),
        },
        _ => Ended::Away(status),
    }
}

fn garbage(error: &dyn std::fmt::Display) -> Ended {
    let message = format!("failed to decode the server's response: {error}");
    Ended::Away(Status::new(Code::Internal, message))
}
