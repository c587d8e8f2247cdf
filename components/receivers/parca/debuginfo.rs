//! Parca's service for debuginfo, passed through to a server that has one.
//!
//! An upload goes on message by message: two of them are held, never the file.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use profcol_net::grpc::{Code, Status};
use profcol_net::{GrpcCall, GrpcClient, GrpcConversation, GrpcStream, Message};
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

/// Uploads that go on at once; others wait.
const MAX_UPLOADS: usize = 4;
/// A server may ask others whether they have a file before it answers.
const CALL_TIMEOUT: Duration = Duration::from_secs(300);

pub struct Debuginfo {
    upstream: Option<GrpcClient>,
    uploads: Semaphore,
    patience: CallTimeout,
}

/// How long an upload may stand still.
#[derive(Clone, Copy)]
struct CallTimeout(Duration);

impl Debuginfo {
    pub fn new(upstream: Option<GrpcClient>, idle_timeout: Duration) -> Self {
        Self {
            upstream,
            uploads: Semaphore::new(MAX_UPLOADS),
            patience: CallTimeout(idle_timeout),
        }
    }

    pub fn has(path: &str) -> bool {
        Self::is_upload(path) || UNARY.contains(&path)
    }

    pub fn is_upload(path: &str) -> bool {
        path == UPLOAD
    }

    /// The answer to a call with one message.
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
                SHOULD_INITIATE_UPLOAD => Ok(not_wanted()),
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

    /// Passes an upload on.
    pub async fn upload(&self, conversation: &mut GrpcConversation) -> Result<(), Status> {
        let upstream = self.upstream.as_ref().ok_or_else(no_upstream)?;
        let patience = self.patience;
        let turn = patience.wait(async { Ok(self.uploads.acquire().await) });
        let _turn = turn.await?;
        let mut held = patience.wait(conversation.receive()).await?;
        if held.is_none() {
            let message = "the call ended before its first message";
            return Err(Status::new(Code::InvalidArgument, message));
        }
        let opened = upstream.stream(UPLOAD, HeaderMap::new(), None);
        let mut stream = patience.wait(opened).await?;
        while let Some(message) = held {
            held = patience.wait(conversation.receive()).await?;
            let sent = patience.wait(pass(&mut stream, message, held.is_none()));
            let sent = sent.await;
            if let Err(broken) = sent {
                // A server that refuses an upload does not wait for its end, and says why.
                let said = patience.wait(stream.receive()).await;
                return Err(said.err().unwrap_or(broken));
            }
        }
        while let Some(answer) = patience.wait(stream.receive()).await? {
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
            let message = format!("the upload stood still for {limit}");
            Err(Status::new(Code::DeadlineExceeded, message))
        })
    }
}

fn not_wanted() -> Bytes {
    encode(&ShouldInitiateUploadResponse {
        should_initiate_upload: false,
        reason: no_upstream().message,
    })
}

fn no_upstream() -> Status {
    let message = "debuginfo is not taken here: there is no `debuginfo_upstream`";
    Status::new(Code::FailedPrecondition, message)
}
