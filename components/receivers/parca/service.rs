//! The calls of agents.

use bytes::Bytes;
use http::HeaderMap;
use profcol_component::{Batch, Output};
use profcol_net::grpc::{Code, Status};
use profcol_net::{GrpcConversation, GrpcRequest, GrpcService, unknown_method};
use profcol_parca::ipc::{self, BadRecord};
use profcol_parca::service::{WRITE, WRITE_ARROW, record, request};
use profcol_parca::v1::{self, Stacks, encode_wanted};
use profcol_parca::{Refused, Samples, StackRefs, to_model, v2};
use profcol_profile::{Model, Profiles};
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::shared::status;

pub struct Service {
    output: Output,
    write_timeout: Duration,
    /// Bytes that a record may take when it is decompressed.
    longest: usize,
}

/// A record of a message compresses to no less than a twentieth.
const EXPANSION: usize = 20;

impl Service {
    pub fn new(output: Output, write_timeout: Duration, max_message_mib: u32) -> Self {
        let longest = (max_message_mib as usize) << 20;
        Self {
            output,
            write_timeout,
            longest: longest.saturating_mul(EXPANSION),
        }
    }

    async fn deliver(&self, model: Model) -> Result<(), Status> {
        let profiles = Profiles::from_model(model);
        if profiles.is_empty() {
            return Ok(());
        }
        self.output.push(Batch::new(profiles)).await.map_err(status)
    }

    /// Samples first, then those of the stacks that were asked for: all of them, since a stack that
    /// was known once may be one that was given up.
    async fn write(&self, conversation: &mut GrpcConversation) -> Result<(), Status> {
        let Some(message) = conversation.receive().await? else {
            let message = "the call ended before its first message";
            return Err(Status::new(Code::InvalidArgument, message));
        };
        let longest = self.longest;
        let (samples, wanted) = blocking(move || {
            let samples = read(&message, longest, v1::read_samples)?;
            let StackRefs::Ids(ids) = &samples.stacks else {
                return Err(invalid("the samples have no ids of stacks"));
            };
            let used = ids.used();
            let wanted = encode_wanted(used.into_iter().filter(|id| !id.is_empty()));
            let wanted = wanted.map_err(|error| Status::new(Code::Internal, error.to_string()))?;
            Ok((samples, wanted))
        })
        .await?;
        conversation.send(request(&wanted)).await?;
        let Some(message) = conversation.receive().await? else {
            return Err(invalid("the call ended before the stacks came"));
        };
        let model = blocking(move || {
            let stacks = read(&message, longest, |batch| {
                let mut stacks = Stacks::default();
                stacks.add(batch)?;
                Ok(stacks)
            })?;
            model(&samples, &stacks)
        })
        .await?;
        self.deliver(model).await
    }
}

impl GrpcService for Service {
    fn admit(&self, path: &str, _: &HeaderMap) -> Result<(), Status> {
        match path {
            WRITE | WRITE_ARROW => Ok(()),
            path => Err(unknown_method(path)),
        }
    }

    async fn call(&self, request: GrpcRequest) -> Result<Bytes, Status> {
        let (message, longest) = (request.message.plain, self.longest);
        let model = blocking(move || {
            let samples = read(&message, longest, v2::read_samples)?;
            model(&samples, &Stacks::default())
        });
        self.deliver(model.await?).await?;
        Ok(Bytes::new())
    }

    fn is_conversation(&self, path: &str) -> bool {
        path == WRITE
    }

    async fn converse(&self, mut conversation: GrpcConversation) -> Result<(), Status> {
        let writing = timeout(self.write_timeout, self.write(&mut conversation));
        writing.await.unwrap_or_else(|_| {
            let message = "the call took longer than `write_timeout`";
            Err(Status::new(Code::DeadlineExceeded, message))
        })
    }
}

/// Reads the record in a message.
fn read<T>(
    message: &[u8],
    longest: usize,
    read: impl FnOnce(&profcol_parca::RecordBatch) -> Result<T, Refused>,
) -> Result<T, Status> {
    let record = record(message).map_err(|error| invalid(&error.to_string()))?;
    let batch = ipc::read(record, longest).map_err(|error| match error {
        error @ BadRecord::TooLarge { .. } => {
            Status::new(Code::ResourceExhausted, error.to_string())
        }
        error => invalid(&error.to_string()),
    })?;
    let batch = batch.ok_or_else(|| invalid("the record has no batch of rows"))?;
    read(&batch).map_err(|error| invalid(&error.to_string()))
}

fn model(samples: &Samples, stacks: &Stacks) -> Result<Model, Status> {
    to_model(samples, stacks).map_err(|error| invalid(&error.to_string()))
}

fn invalid(reason: &str) -> Status {
    Status::new(Code::InvalidArgument, reason)
}

/// Reading takes milliseconds, in which other calls go on.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    let done = spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(Status::new(Code::Internal, "reading the record failed")))
}
