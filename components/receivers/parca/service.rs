//! The RPCs of agents.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use profcol_admission::{Admission, Reservation};
use profcol_component::{Batch, BatchId, Output};
use profcol_net::grpc::{Code, Status};
use profcol_net::{GrpcRequest, GrpcServerStream, GrpcService, unknown_method};
use profcol_parca::ipc::{self, BadRecord};
use profcol_parca::raw::{self, BadSeries};
use profcol_parca::service::{WRITE, WRITE_ARROW, WRITE_RAW, record, request};
use profcol_parca::v1::{self, Stacks, encode_stack_request};
use profcol_parca::{RecordError, Samples, StackRefs, to_model, v2};
use profcol_pprof::{Limits, PprofError};
use profcol_profile::Profiles;
use tokio::time::timeout;

use super::debuginfo::Debuginfo;
use crate::shared::status;

pub struct Service {
    output: Output,
    write_timeout: Duration,
    /// Maximum size of a decompressed record, in bytes.
    longest: usize,
    debuginfo: Debuginfo,
    admission: Admission,
}

/// Maximum compression ratio of a record.
const EXPANSION: usize = 20;

impl Service {
    pub fn new(
        output: Output,
        write_timeout: Duration,
        max_message_mib: u32,
        debuginfo: Debuginfo,
        admission: Admission,
    ) -> Self {
        let longest = (max_message_mib as usize) << 20;
        Self {
            output,
            write_timeout,
            longest: longest.saturating_mul(EXPANSION),
            debuginfo,
            admission,
        }
    }

    /// Decoding takes milliseconds, so it runs on a blocking thread.
    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Admission) -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        let admission = self.admission.clone();
        let done = self.admission.run_blocking(move || work(&admission)).await;
        done.unwrap_or_else(|_| Err(Status::new(Code::Internal, "failed to decode the record")))
    }

    /// Pushes the samples; after a retryable status, an agent sends the same ones again.
    async fn deliver(&self, profiles: Profiles, id: BatchId) -> Result<(), Status> {
        if profiles.is_empty() {
            return Ok(());
        }
        let batch = Batch::new(profiles).with_resend_id(id);
        self.output.push(batch).await.map_err(status)
    }

    /// Receives samples, then the stacks requested for them: all of them, since a stack
    /// seen before may have been evicted.
    async fn write(&self, conversation: &mut GrpcServerStream) -> Result<(), Status> {
        let Some(message) = conversation.receive().await? else {
            let message = "the call ended before its first message";
            return Err(Status::new(Code::InvalidArgument, message));
        };
        let id = BatchId::of_content(&message);
        let longest = self.longest;
        let reading = self.run_blocking(move |admission| {
            let _reserved = reserve(admission.reservation(), &message)?;
            let samples = read(&message, longest, v1::read_samples)?;
            let StackRefs::Ids(ids) = &samples.stacks else {
                return Err(invalid("the samples have no stack IDs"));
            };
            let used = ids.used();
            let requested = encode_stack_request(used.into_iter().filter(|id| !id.is_empty()));
            let requested =
                requested.map_err(|error| Status::new(Code::Internal, error.to_string()))?;
            Ok((samples, requested))
        });
        let (samples, requested) = reading.await?;
        conversation.send(request(&requested)).await?;
        let Some(message) = conversation.receive().await? else {
            return Err(invalid("the call ended before the stacks arrived"));
        };
        let reading = self.run_blocking(move |admission| {
            let _reserved = reserve(admission.reservation(), &message)?;
            let stacks = read(&message, longest, |batch| {
                let mut stacks = Stacks::default();
                stacks.add(batch)?;
                Ok(stacks)
            })?;
            profiles(&samples, &stacks)
        });
        self.deliver(reading.await?, id).await
    }
}

impl GrpcService for Service {
    fn admit(&self, path: &str, _: &HeaderMap) -> Result<(), Status> {
        match path {
            WRITE | WRITE_ARROW | WRITE_RAW => Ok(()),
            path if Debuginfo::has(path) => Ok(()),
            path => Err(unknown_method(path)),
        }
    }

    async fn call(&self, request: GrpcRequest) -> Result<Bytes, Status> {
        let GrpcRequest {
            path,
            message,
            reserved,
            deadline,
            ..
        } = request;
        let id = BatchId::of_content(&message.plain);
        let longest = self.longest;
        let profiles = match path.as_str() {
            WRITE_ARROW => {
                let reading = self.run_blocking(move |_| {
                    let _reserved = reserve(reserved, &message.plain)?;
                    let samples = read(&message.plain, longest, v2::read_samples)?;
                    profiles(&samples, &Stacks::default())
                });
                reading.await?
            }
            WRITE_RAW => {
                let reading = self.run_blocking(move |_| read_raw(reserved, &message.plain));
                reading.await?
            }
            path => return self.debuginfo.call(path, &message, deadline).await,
        };
        self.deliver(profiles, id).await?;
        Ok(Bytes::new())
    }

    fn is_streaming(&self, path: &str) -> bool {
        path == WRITE || Debuginfo::is_upload(path)
    }

    async fn stream(&self, mut conversation: GrpcServerStream) -> Result<(), Status> {
        if Debuginfo::is_upload(&conversation.path) {
            return self.debuginfo.upload(&mut conversation).await;
        }
        let writing = timeout(self.write_timeout, self.write(&mut conversation));
        writing.await.unwrap_or_else(|_| {
            let message = "the call took longer than `write_timeout`";
            Err(Status::new(Code::DeadlineExceeded, message))
        })
    }
}

/// Reserves memory for decoding a message's record.
fn reserve(mut reserved: Reservation, message: &[u8]) -> Result<Reservation, Status> {
    let record = record(message).map_err(|error| invalid(&error.to_string()))?;
    let needed = ipc::memory_needed(record).map_err(|error| invalid(&error.to_string()))?;
    reserved.resize(needed)?;
    Ok(reserved)
}

/// Decodes a message's record.
fn read<T>(
    message: &[u8],
    longest: usize,
    read: impl FnOnce(&profcol_parca::RecordBatch) -> Result<T, RecordError>,
) -> Result<T, Status> {
    let record = record(message).map_err(|error| invalid(&error.to_string()))?;
    let batch = ipc::read(record, longest).map_err(|error| match error {
        error @ BadRecord::TooLarge { .. } => {
            Status::new(Code::ResourceExhausted, error.to_string())
        }
        error => invalid(&error.to_string()),
    })?;
    let batch = batch.ok_or_else(|| invalid("the record has no record batch"))?;
    read(&batch).map_err(|error| invalid(&error.to_string()))
}

fn profiles(samples: &Samples, stacks: &Stacks) -> Result<Profiles, Status> {
    let model = to_model(samples, stacks).map_err(|error| invalid(&error.to_string()))?;
    Ok(Profiles::from_model(model))
}

/// Decodes pprof files, with the status codes of a real server.
fn read_raw(mut reserved: Reservation, message: &[u8]) -> Result<Profiles, Status> {
    let refused = |error: BadSeries| {
        let code = match error {
            BadSeries::BadName { .. } | BadSeries::File(PprofError::Gzip(_)) => Code::Unknown,
            BadSeries::File(PprofError::TooLarge { .. }) => Code::ResourceExhausted,
            _ => Code::InvalidArgument,
        };
        Status::new(code, error.to_string())
    };
    let series = raw::read(message).map_err(refused)?;
    let limits = raw::limits(&series, Limits::default());
    reserved.resize(limits.file_bytes.saturating_add(limits.model_bytes))?;
    raw::to_profiles(&series, limits).map_err(refused)
}

fn invalid(reason: &str) -> Status {
    Status::new(Code::InvalidArgument, reason)
}
