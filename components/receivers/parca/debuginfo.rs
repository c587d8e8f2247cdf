//! Parca's debuginfo service, forwarded to an upstream server.
//!
//! An upload is forwarded message by message: memory holds two of them, never the file.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use profcol_net::grpc::{Code, Status};
use profcol_net::{GrpcCall, GrpcClient, GrpcServerStream, GrpcStream, Message};
use profcol_parca::debuginfo::{
    INITIATE_UPLOAD, MARK_UPLOAD_FINISHED, SHOULD_INITIATE_UPLOAD, ShouldInitiateUploadResponse,
    UPLOAD, encode,
};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

const UNARY: [&str; 3] = [
    SHOULD_INITIATE_UPLOAD,
    INITIATE_UPLOAD,
    MARK_UPLOAD_FINISHED,
];

/// Maximum number of concurrent uploads; others wait.
const MAX_UPLOADS: usize = 4;
/// Long, because the server may ask debuginfod servers before it answers.
const CALL_TIMEOUT: Duration = Duration::from_secs(300);

pub struct Debuginfo {
    upstream: Option<GrpcClient>,
    uploads: Semaphore,
    timeout: CallTimeout,
}

/// How long an upload may make no progress.
#[derive(Clone, Copy)]
struct CallTimeout(Duration);

impl Debuginfo {
    pub fn new(upstream: Option<GrpcClient>, idle_timeout: Duration) -> Self {
        Self {
            upstream,
            uploads: Semaphore::new(MAX_UPLOADS),
            timeout: CallTimeout(idle_timeout),
        }
    }

    pub fn has(path: &str) -> bool {
        Self::is_upload(path) || UNARY.contains(&path)
    }

    pub fn is_upload(path: &str) -> bool {
        path == UPLOAD
    }

    /// Forwards a unary call.
    pub async fn call(
        &self,
        path: &str,
        message: &Message,
        deadline: Option<Instant>,
    ) -> Result<Bytes, Status> {
        let path = UNARY.into_iter().find(|known| *known == path);
        let path = path.ok_or_else(|| Status::new(Code::Unimplemented, "no such method"))?;
        let Some(upstream) = &self.upstream else {
            return match path {
                SHOULD_INITIATE_UPLOAD => Ok(no_upload_needed()),
                _ => Err(no_upstream()),
            };
        };
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let call = GrpcCall {
            path,
            message,
            headers: HeaderMap::new(),
            timeout: Some(left.unwrap_or(CALL_TIMEOUT).min(CALL_TIMEOUT)),
        };
        Ok(upstream.unary(call).await?.message)
    }

    /// Forwards an upload.
    pub async fn upload(&self, conversation: &mut GrpcServerStream) -> Result<(), Status> {
        let upstream = self.upstream.as_ref().ok_or_else(no_upstream)?;
        let timeout = self.timeout;
        let turn = timeout.wait(async { Ok(self.uploads.acquire().await) });
        let _turn = turn.await?;
        let mut held = timeout.wait(conversation.receive()).await?;
        if held.is_none() {
            let message = "the call ended before its first message";
            return Err(Status::new(Code::InvalidArgument, message));
        }
        let opened = upstream.stream(UPLOAD, HeaderMap::new(), None);
        let mut stream = timeout.wait(opened).await?;
        while let Some(message) = held {
            held = timeout.wait(conversation.receive()).await?;
            let sent = timeout.wait(pass(&mut stream, message, held.is_none()));
            let sent = sent.await;
            if let Err(broken) = sent {
                // A server may refuse an upload before its end, with a reason.
                let answer = timeout.wait(stream.receive()).await;
                return Err(answer.err().unwrap_or(broken));
            }
        }
        while let Some(answer) = timeout.wait(stream.receive()).await? {
            conversation.send(answer).await?;
        }
        Ok(())
    }
}

async fn pass(stream: &mut GrpcStream, message: Bytes, is_last: bool) -> Result<(), Status> {
    stream.ready().await?;
    stream.send(message, is_last).await
}

impl CallTimeout {
    async fn wait<T>(self, work: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        let done = timeout(self.0, work).await;
        done.unwrap_or_else(|_| {
            let limit = profcol_config::Duration::from(self.0);
            let message = format!("the upload made no progress for {limit}");
            Err(Status::new(Code::DeadlineExceeded, message))
        })
    }
}

fn no_upload_needed() -> Bytes {
    encode(&ShouldInitiateUploadResponse {
        should_initiate_upload: false,
        reason: no_upstream().message,
    })
}

fn no_upstream() -> Status {
    let message = "debuginfo is not accepted: `debuginfo_upstream` is not configured";
    Status::new(Code::FailedPrecondition, message)
}
