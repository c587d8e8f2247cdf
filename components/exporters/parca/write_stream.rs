//! Sending a batch: in one message, or samples first and then the stacks that the server asks for.

use std::time::Duration;

use http::HeaderMap;
use profcol_component::Refusal;
use profcol_net::grpc::{Code, Status};
use profcol_net::{GrpcCall, GrpcClient, GrpcStream, Message};
use profcol_parca::service::{WRITE, record};
use profcol_parca::v1::read_wanted;
use profcol_parca::{StackId, ipc};

use super::messages::{EncodeError, Messages, WriteStream};

/// A record with the ids of all stacks of a batch; it is one of ours that comes back.
const MAX_RESPONSE: usize = 64 << 20;

/// Why a batch was not taken.
#[derive(Debug)]
pub enum SendError {
    /// The server says so, or the way to it, of a message of that many bytes.
    Refused {
        status: Status,
        bytes: usize,
    },
    /// A message of that many bytes, which is not sent.
    TooLarge {
        refusal: Refusal,
        bytes: usize,
    },
    EncodeError(EncodeError),
    /// Connections ended under it, again and again.
    Poisoned {
        status: Status,
    },
}

impl From<EncodeError> for SendError {
    fn from(error: EncodeError) -> Self {
        Self::EncodeError(error)
    }
}

/// Sends a batch; the call may take as long as `timeout`.
pub async fn send(
    client: &GrpcClient,
    messages: &Messages,
    timeout: Option<Duration>,
) -> Result<(), SendError> {
    match messages {
        Messages::One { path, message } => {
            let bytes = message.len();
            let message = Message::from(message.clone());
            let call = GrpcCall {
                path,
                message: &message,
                headers: HeaderMap::new(),
                timeout,
            };
            let sent = client.unary(call).await;
            sent.map_err(|status| SendError::Refused { status, bytes })?;
            Ok(())
        }
        Messages::WriteStream(write_stream) => {
            let conversation = converse(client, write_stream, timeout);
            let Some(timeout) = timeout else {
                return conversation.await;
            };
            let ended = tokio::time::timeout(timeout, conversation).await;
            ended.unwrap_or_else(|_| {
                let message = "context deadline exceeded";
                Err(SendError::Refused {
                    status: Status::new(Code::DeadlineExceeded, message),
                    bytes: messages.longest(),
                })
            })
        }
    }
}

async fn converse(
    client: &GrpcClient,
    write_stream: &WriteStream,
    timeout: Option<Duration>,
) -> Result<(), SendError> {
    let bytes = write_stream.samples.len();
    let refused = |status| SendError::Refused { status, bytes };
    let mut stream = client
        .stream(WRITE, HeaderMap::new(), timeout)
        .await
        .map_err(refused)?;
    let sent = stream.send(write_stream.samples.clone(), false).await;
    sent.map_err(refused)?;
    let Some(asked) = asked(&mut stream).await.map_err(refused)? else {
        return Ok(());
    };
    let stacks = write_stream.answer(asked).await?;
    let bytes = stacks.len();
    let refused = |status| SendError::Refused { status, bytes };
    stream.send(stacks, true).await.map_err(refused)?;
    while stream.receive().await.map_err(refused)?.is_some() {}
    Ok(())
}

/// The ids of the stacks that the server wants; none where it has said that all is well.
async fn asked(stream: &mut GrpcStream) -> Result<Option<Vec<StackId>>, Status> {
    let Some(answer) = stream.receive().await? else {
        return Ok(None);
    };
    let bad = |reason: String| {
        let message = format!("failed to decode the server's stack request: {reason}");
        Status::new(Code::Internal, message)
    };
    let record = record(&answer).map_err(|error| bad(error.to_string()))?;
    if record.is_empty() {
        return Ok(None);
    }
    let batch = ipc::read(record, MAX_RESPONSE).map_err(|error| bad(error.to_string()))?;
    let Some(batch) = batch else {
        return Ok(None);
    };
    let ids = read_wanted(&batch).map_err(|error| bad(error.to_string()))?;
    let ids = ids.iter().map(|id| {
        let is_ours: Result<StackId, _> = (**id).try_into();
        is_ours.map_err(|_| bad(format!("id with invalid length {}", id.len())))
    });
    ids.collect::<Result<_, _>>().map(Some)
}
