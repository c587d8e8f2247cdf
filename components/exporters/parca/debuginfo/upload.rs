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
    BuildIdType, IN_PROGRESS, INITIATE_UPLOAD, InitiateUploadRequest, InitiateUploadResponse,
    MARK_UPLOAD_FINISHED, SHOULD_INITIATE_UPLOAD, ShouldInitiateUploadRequest,
    ShouldInitiateUploadResponse, UPLOAD, UploadData, UploadInstructions, UploadRequest,
    UploadStrategy, decode, encode,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::capacity::Capacity;
use super::lock;
use super::pace::Budget;
use super::reader::{FileReader, Planned, Settings, Skipped};
use crate::shared::otlp::USER_AGENT;

/// How long a question may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How often the end of an upload is told, since without it all of it was for nothing.
const MAX_FINISH_ATTEMPTS: u32 = 4;
/// What an upload to a signed URL may take longer than its pace.
const SIGNED_URL_SLACK: Duration = Duration::from_secs(60);
/// The status of an upload that ended here, which says nothing of the server.
const LOCAL_ABORT: Code = Code::Aborted;
/// The server takes none that are shorter.
const MIN_BUILD_ID_LEN: usize = 3;

/// What became of a try.
#[derive(Debug)]
pub enum UploadOutcome {
    Uploaded(Planned),
    /// The server has it, or can get it.
    AlreadyPresent {
        reason: String,
    },
    InProgress,
    /// The server never wants it.
    Refused {
        reason: String,
    },
    Skipped(Skipped),
    /// It was begun and did not come to its end.
    Interrupted(Interrupted),
    /// The server could not be asked.
    Unavailable(Status),
    /// The server takes no debuginfo.
    NoService,
}

/// An upload that broke.
#[derive(Debug)]
pub struct Interrupted {
    pub size: u64,
    pub sent: u64,
    pub accepted: Duration,
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
    pub uses_signed_urls: AtomicBool,
}

impl Uploader {
    pub async fn upload(&self, executable: Executable) -> UploadOutcome {
        self.try_upload(executable)
            .await
            .unwrap_or_else(|ended| ended)
    }

    /// Every end but the good one is an error, so that each step can end it.
    async fn try_upload(&self, executable: Executable) -> Result<UploadOutcome, UploadOutcome> {
        let (build_id, hash) = (executable.build_id.clone(), executable.hash.clone());
        if build_id.text().len() < MIN_BUILD_ID_LEN {
            let reason = "the build id is too short".to_owned();
            return Err(UploadOutcome::Refused { reason });
        }
        let build_id_type = match build_id {
            BuildId::Gnu(_) => BuildIdType::Gnu,
            BuildId::Hash(_) => BuildIdType::Hash,
        };
        self.ask(&ShouldInitiateUploadRequest {
            build_id: build_id.text().to_owned(),
            hash: hash.to_string(),
            build_id_type: build_id_type.into(),
        })
        .await?;
        let settings = Settings {
            upload_limit: (!self.uses_signed_urls.load(Relaxed))
                .then(|| lock(&self.capacity).upload_limit()),
            ..self.settings.clone()
        };
        let mut reader = FileReader::plan(executable, settings)
            .await
            .map_err(UploadOutcome::Skipped)?;
        let initiate = InitiateUploadRequest {
            build_id: build_id.text().to_owned(),
            // The limit of a file's size is far below what does not fit.
            size: i64::try_from(reader.planned().size).unwrap_or(i64::MAX),
            hash: hash.to_string(),
            build_id_type: build_id_type.into(),
        };
        let instructions = self.initiate(&initiate).await?;
        let sent = match UploadStrategy::try_from(instructions.upload_strategy) {
            Ok(UploadStrategy::Grpc) => self.upload_by_grpc(&instructions, &mut reader).await,
            Ok(UploadStrategy::SignedUrl) => {
                self.uses_signed_urls.store(true, Relaxed);
                self.upload_by_url(&instructions, &mut reader).await
            }
            Ok(UploadStrategy::Unspecified) | Err(_) => {
                let other = instructions.upload_strategy;
                let reason = format!("the server requested the unknown upload strategy {other}");
                return Err(UploadOutcome::Refused { reason });
            }
        };
        let planned = reader.planned();
        match (reader.end().await, sent) {
            // That is the cause of everything else.
            (Some(Err(skipped)), _) => return Err(UploadOutcome::Skipped(skipped)),
            (_, Err(interrupted)) => return Err(UploadOutcome::Interrupted(interrupted)),
            (_, Ok(())) => {}
        }
        self.finish(&instructions, planned.size).await?;
        Ok(UploadOutcome::Uploaded(planned))
    }

    async fn ask(&self, request: &ShouldInitiateUploadRequest) -> Result<(), UploadOutcome> {
        let answer = self.call(SHOULD_INITIATE_UPLOAD, encode(request));
        let answer = answer.await.map_err(|status| match status.code {
            Code::Unimplemented => UploadOutcome::NoService,
            _ => refusal(status),
        })?;
        let ShouldInitiateUploadResponse {
            should_initiate_upload,
            reason,
        } = decode(&answer).map_err(|error| invalid_response(&error))?;
        if should_initiate_upload {
            Ok(())
        } else if reason == IN_PROGRESS {
            Err(UploadOutcome::InProgress)
        } else {
            Err(UploadOutcome::AlreadyPresent { reason })
        }
    }

    async fn initiate(
        &self,
        request: &InitiateUploadRequest,
    ) -> Result<UploadInstructions, UploadOutcome> {
        let answer = self.call(INITIATE_UPLOAD, encode(request));
        let answer = answer.await.map_err(|status| match status.code {
            // Somebody else began, or has it done: the next question tells which.
            Code::FailedPrecondition => UploadOutcome::InProgress,
            Code::AlreadyExists => UploadOutcome::AlreadyPresent {
                reason: status.message,
            },
            _ => refusal(status),
        })?;
        let InitiateUploadResponse {
            upload_instructions,
        } = decode(&answer).map_err(|error| invalid_response(&error))?;
        let reason = || "the server sent no upload instructions".to_owned();
        upload_instructions.ok_or_else(|| UploadOutcome::Refused { reason: reason() })
    }

    async fn upload_by_grpc(
        &self,
        instructions: &UploadInstructions,
        reader: &mut FileReader,
    ) -> Result<(), Interrupted> {
        let mut attempt = Attempt::of(reader);
        let pace = lock(&self.budget).pace(attempt.size, Some(self.timeout), Instant::now());
        let chunks = reader.start(pace);
        let sending = self.send(instructions, chunks, attempt.size, &mut attempt.sent);
        let outcome = timeout(self.timeout, sending).await;
        let accepted = attempt.begin.elapsed();
        let mut capacity = lock(&self.capacity);
        match outcome {
            Ok(Ok(())) => {
                capacity.ended(attempt.size, accepted);
                Ok(())
            }
            Ok(Err(status)) => {
                if status.code != LOCAL_ABORT {
                    capacity.broke(attempt.sent, accepted, Some(&status));
                }
                Err(attempt.interrupted(status.to_string()))
            }
            Err(_) => {
                capacity.broke(attempt.sent, accepted, None);
                let reason = "the upload exceeded `debuginfo::timeout`";
                Err(attempt.interrupted(reason.to_owned()))
            }
        }
    }

    async fn send(
        &self,
        instructions: &UploadInstructions,
        mut chunks: mpsc::Receiver<Bytes>,
        size: u64,
        sent: &mut u64,
    ) -> Result<(), Status> {
        let mut stream = self
            .client
            .stream(UPLOAD, HeaderMap::new(), Some(self.timeout))
            .await?;
        let info = UploadData::Info(instructions.info());
        let info = encode(&UploadRequest { data: Some(info) });
        stream.send(info, false).await?;
        // One is held back, since the last one has to say so.
        let mut queued: Option<Bytes> = None;
        while let Some(next) = chunks.recv().await {
            let Some(data) = queued.replace(next) else {
                continue;
            };
            *sent += self.send_chunk(&mut stream, data, false).await?;
        }
        if let Some(data) = queued {
            if *sent + (data.len() as u64) < size {
                // To end the call well would say that this is all of it.
                let message = "the file was not read completely";
                return Err(Status::new(LOCAL_ABORT, message));
            }
            *sent += self.send_chunk(&mut stream, data, true).await?;
        }
        while stream.receive().await?.is_some() {}
        Ok(())
    }

    /// Says how many bytes of the file it was.
    async fn send_chunk(
        &self,
        stream: &mut GrpcStream,
        data: Bytes,
        is_last: bool,
    ) -> Result<u64, Status> {
        let bytes = data.len() as u64;
        let data = Some(UploadData::ChunkData(data));
        let message = encode(&UploadRequest { data });
        let sending = async {
            stream.ready().await?;
            stream.send(message, is_last).await
        };
        if let Err(interrupted) = sending.await {
            // A server that refuses an upload does not wait for its end, and says why.
            return Err(stream.receive().await.err().unwrap_or(interrupted));
        }
        lock(&self.budget).spend(bytes, Instant::now());
        Ok(bytes)
    }

    async fn upload_by_url(
        &self,
        instructions: &UploadInstructions,
        reader: &mut FileReader,
    ) -> Result<(), Interrupted> {
        let mut attempt = Attempt::of(reader);
        let size = attempt.size;
        let now = Instant::now();
        let pace = lock(&self.budget).pace(size, None, now);
        let needed = pace.map_or(Duration::ZERO, |pace| pace.due(size) - now);
        let settings = HttpClientSettings {
            timeout: (2 * needed + SIGNED_URL_SLACK).into(),
            compression: Compression::None,
            ..HttpClientSettings::default()
        };
        // Whoever has the URL may write there: no message says it.
        let client = HttpClient::new(&settings, &instructions.signed_url, None, USER_AGENT);
        let Ok(client) = client else {
            let reason = "the server sent an invalid signed URL";
            return Err(attempt.interrupted(reason.to_owned()));
        };
        let chunks = reader.start(pace);
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
        outcome.map_err(|reason| attempt.interrupted(reason))
    }

    async fn finish(
        &self,
        instructions: &UploadInstructions,
        bytes: u64,
    ) -> Result<(), UploadOutcome> {
        let begin = Instant::now();
        let mut wait = Duration::from_secs(1);
        for round in 1.. {
            let answer = self.call(MARK_UPLOAD_FINISHED, encode(&instructions.info()));
            let Err(status) = answer.await else {
                break;
            };
            if round == MAX_FINISH_ATTEMPTS
                || !matches!(refusal(status.clone()), UploadOutcome::Unavailable(_))
            {
                return Err(UploadOutcome::Interrupted(Interrupted {
                    size: bytes,
                    sent: bytes,
                    accepted: begin.elapsed(),
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
            timeout: Some(REQUEST_TIMEOUT),
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
    fn of(reader: &FileReader) -> Self {
        Self {
            size: reader.planned().size,
            sent: 0,
            begin: Instant::now(),
        }
    }

    fn interrupted(&self, reason: String) -> Interrupted {
        Interrupted {
            size: self.size,
            sent: self.sent,
            accepted: self.begin.elapsed(),
            reason,
        }
    }
}

/// What a status of a question means: of what was asked, or of the server's state.
fn refusal(status: Status) -> UploadOutcome {
    match status.code {
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented => UploadOutcome::Refused {
            reason: status.to_string(),
        },
        _ => UploadOutcome::Unavailable(status),
    }
}

fn invalid_response(error: &dyn std::fmt::Display) -> UploadOutcome {
    let message = format!("failed to decode the server's response: {error}");
    UploadOutcome::Unavailable(Status::new(Code::Internal, message))
}
