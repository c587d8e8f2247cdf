//! The upload of one executable, from the request whether it is needed to the end.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use parking_lot::Mutex;
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
use profcol_reader::Planned;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::capacity::Capacity;
use super::pace::Budget;
use super::reader::{FileReader, Settings, Skipped};
use crate::shared::otlp::USER_AGENT;

/// Timeout of a unary request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Attempts to mark an upload as finished: without that the whole upload is lost.
const MAX_FINISH_ATTEMPTS: u32 = 4;
/// Additional time for an upload to a signed URL, beyond its pace.
const SIGNED_URL_SLACK: Duration = Duration::from_secs(60);
/// The status of an upload that was aborted here, which is not the server's.
const LOCAL_ABORT: Code = Code::Aborted;
/// The server accepts no shorter ones.
const MIN_BUILD_ID_LEN: usize = 3;

/// The outcome of an attempt.
#[derive(Debug)]
pub enum UploadOutcome {
    Uploaded(Planned),
    /// The server has it, or can get it.
    AlreadyPresent {
        reason: String,
    },
    InProgress,
    /// The server will never accept it.
    Refused {
        reason: String,
    },
    Skipped(Skipped),
    /// It was started and did not finish.
    Interrupted(Interrupted),
    /// The server was unavailable.
    Unavailable(Status),
    /// The server accepts no debuginfo.
    NoService,
}

/// An interrupted upload.
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
    /// Whether the server returns signed URLs, for which there is no time limit.
    pub uses_signed_urls: AtomicBool,
}

impl Uploader {
    pub async fn upload(&self, executable: Executable) -> UploadOutcome {
        self.try_upload(executable)
            .await
            .unwrap_or_else(|ended| ended)
    }

    /// Every outcome but success is an error, so that each step can end the attempt with `?`.
    async fn try_upload(&self, executable: Executable) -> Result<UploadOutcome, UploadOutcome> {
        let (build_id, hash) = (executable.build_id.clone(), executable.hash.clone());
        if build_id.text().len() < MIN_BUILD_ID_LEN {
            let reason = "the build ID is too short".to_owned();
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
                .then(|| self.capacity.lock().upload_limit()),
            ..self.settings.clone()
        };
        let mut reader = FileReader::plan(executable, settings)
            .await
            .map_err(UploadOutcome::Skipped)?;
        let initiate = InitiateUploadRequest {
            build_id: build_id.text().to_owned(),
            // The limit for files is far below the range.
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
            // This is the root cause.
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
            // Another agent started or finished it: the next request will show.
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
        let pace = self
            .budget
            .lock()
            .pace(attempt.size, Some(self.timeout), Instant::now());
        let chunks = reader.start(pace);
        let sending = self.send(instructions, chunks, attempt.size, &mut attempt.sent);
        let outcome = timeout(self.timeout, sending).await;
        let accepted = attempt.begin.elapsed();
        let mut capacity = self.capacity.lock();
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
        // One chunk is held back, since the last one must be marked.
        let mut queued: Option<Bytes> = None;
        while let Some(next) = chunks.recv().await {
            let Some(data) = queued.replace(next) else {
                continue;
            };
            *sent += self.send_chunk(&mut stream, data, false).await?;
        }
        if let Some(data) = queued {
            if *sent + (data.len() as u64) < size {
                // A normal end of the call would mark the file as complete.
                let message = "the file was not read completely";
                return Err(Status::new(LOCAL_ABORT, message));
            }
            *sent += self.send_chunk(&mut stream, data, true).await?;
        }
        while stream.receive().await?.is_some() {}
        Ok(())
    }

    /// Returns the number of bytes of the file sent.
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
            // A server may refuse an upload before its end, with a reason.
            return Err(stream.receive().await.err().unwrap_or(interrupted));
        }
        self.budget.lock().spend(bytes, Instant::now());
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
        let pace = self.budget.lock().pace(size, None, now);
        let needed = pace.map_or(Duration::ZERO, |pace| pace.due(size) - now);
        let settings = HttpClientSettings {
            timeout: (2 * needed + SIGNED_URL_SLACK).into(),
            compression: Compression::None,
            ..HttpClientSettings::default()
        };
        // The URL is a credential, so no message contains it.
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
            Err(HttpError::Broken { error, .. }) => Err(error.to_string()),
            Err(error @ (HttpError::Connect(_) | HttpError::Auth(_))) => Err(error.to_string()),
        };
        self.budget.lock().spend(size, now);
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

/// A started upload.
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

/// Whether a status is about the requested file or about the server's state.
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
