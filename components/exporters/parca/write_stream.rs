//! Sends a batch: in one message, or the samples first and then the stacks that the server requests.

use std::time::Duration;

use http::HeaderMap;
use profcol_component::Refusal;
use profcol_net::grpc::{Code, Status};
use profcol_net::{GrpcCall, GrpcClient, GrpcStream, Message};
use profcol_parca::service::{WRITE, record};
use profcol_parca::v1::read_stack_request;
use profcol_parca::{StackId, ipc};

use super::messages::{EncodeError, Messages, WriteStream};

/// A record with the IDs of all stacks of a batch: the server returns one of ours.
const MAX_RESPONSE: usize = 64 << 20;

/// Why a batch was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// Refused by the server or a proxy, with the size of the message.
    #[error("a message of {bytes} bytes was refused: {status}")]
    Refused {
        #[source]
        status: Status,
        bytes: usize,
    },
    /// A message of this size, which was not sent.
    #[error("a message of {bytes} bytes was not sent: {refusal}")]
    TooLarge {
        #[source]
        refusal: Refusal,
        bytes: usize,
    },
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// Connections were repeatedly lost during this batch.
    #[error(
        "the connection broke every time this batch was sent alone; the server may have crashed: {status}"
    )]
    Poisoned {
        #[source]
        status: Status,
    },
}

/// Sends a batch; the call may take up to `timeout`.
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
    let Some(requested) = requested_stacks(&mut stream).await.map_err(refused)? else {
        return Ok(());
    };
    let stacks = write_stream.answer(requested).await?;
    let bytes = stacks.len();
    let refused = |status| SendError::Refused { status, bytes };
    stream.send(stacks, true).await.map_err(refused)?;
    while stream.receive().await.map_err(refused)?.is_some() {}
    Ok(())
}

/// The IDs of the stacks that the server requests; `None` if it needs no more.
async fn requested_stacks(stream: &mut GrpcStream) -> Result<Option<Vec<StackId>>, Status> {
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
    let ids = read_stack_request(&batch).map_err(|error| bad(error.to_string()))?;
    let ids = ids.iter().map(|id| {
        let is_ours: Result<StackId, _> = (**id).try_into();
        is_ours.map_err(|_| bad(format!("id with invalid length {}", id.len())))
    });
    ids.collect::<Result<_, _>>().map(Some)
}
