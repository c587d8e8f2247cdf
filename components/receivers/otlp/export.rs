//! Handles a request of either protocol: checks it, pushes it and answers.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

use ::http::HeaderMap;
use profcol_admission::{Admission, Reservation};
use profcol_component::{Answer, Batch, BatchId, Finalizers, Metadata, Outcome, Output, Refusal};
use profcol_net::Encoding;
use profcol_net::compress::decompress;
use profcol_net::grpc::Status;
use profcol_otlp::service::PartialSuccess;
use profcol_profile::{CompressedWire, Profiles, Reason, Received, Validation};

use crate::shared::{Deduplicator, status};

/// Moves checked messages into the pipelines.
pub(super) struct Export {
    pub(super) sink: PipelineSink,
    pub(super) admission: Admission,
    pub(super) validation: Validation,
    pub(super) deduplicator: Option<Arc<Deduplicator>>,
}

/// The way of a batch into the pipelines.
#[derive(Clone)]
pub(super) struct PipelineSink {
    pub(super) output: Output,
    /// Whether it ends with the delivery.
    pub(super) until_delivered: bool,
}

/// Who sent a request, and which batch it has.
pub(super) struct Origin {
    metadata: Metadata,
    peer: Option<IpAddr>,
    batch: Option<BatchId>,
}

// === impl Export ===

impl Export {
    pub(super) async fn push(
        &self,
        received: Received,
        mut reserved: Reservation,
        origin: Origin,
    ) -> Result<PartialSuccess, Status> {
        let Received { profiles, repaired } = received;
        self.sink
            .output
            .count_failed(repaired.values().sum::<usize>() as u64);
        if !profiles.is_empty() {
            // For processors that decode the batch.
            reserved.resize(profiles.counts().undecoded_size)?;
            let delivering = self.deliver(profiles, reserved, origin);
            delivering.await.map_err(status)?;
        }
        Ok(PartialSuccess {
            rejected_profiles: 0,
            error_message: warning(&repaired),
        })
    }

    async fn deliver(&self, profiles: Profiles, reserved: Reservation, origin: Origin) -> Answer {
        let batch = Batch::new(profiles)
            .with_metadata(origin.metadata)
            .with_peer(origin.peer);
        let Some(id) = origin.batch else {
            return self.sink.deliver(batch, reserved).await;
        };
        let batch = batch.with_id(id);
        let Some(deduplicator) = &self.deduplicator else {
            return self.sink.deliver(batch, reserved).await;
        };
        let samples = batch.profiles.sample_count() as u64;
        let sink = self.sink.clone();
        // Not aborted if the client disconnects: whether the batch was accepted would not be known.
        let delivery = async move { sink.deliver(batch, reserved).await };
        deduplicator.once(id, samples, delivery).await
    }
}

// === impl PipelineSink ===

impl PipelineSink {
    /// The reservation is held until the exporters' queues have the batch.
    async fn deliver(&self, mut batch: Batch, reserved: Reservation) -> Answer {
        if !self.until_delivered {
            return self.output.push(batch).await;
        }
        let (waiting, outcome) = Finalizers::watched();
        batch.finalizers.append(waiting);
        self.output.push(batch).await?;
        drop(reserved);
        match outcome.await {
            Ok(Outcome::Delivered) => Ok(()),
            Ok(Outcome::Rejected) => Err(Refusal::permanent("a destination refused the profiles")),
            Ok(Outcome::Undelivered | Outcome::Lost) | Err(_) => {
                Err(Refusal::retry("the profiles could not be delivered"))
            }
        }
    }
}

// === impl Origin ===

impl Origin {
    pub(super) fn from_headers(
        headers: &HeaderMap,
        include_metadata: bool,
        peer: Option<IpAddr>,
    ) -> Self {
        Self {
            metadata: match include_metadata {
                true => metadata(headers),
                false => Metadata::default(),
            },
            peer,
            batch: batch_id(headers),
        }
    }
}

fn batch_id(headers: &HeaderMap) -> Option<BatchId> {
    let value = headers.get(BatchId::HEADER)?;
    let id = value.to_str().ok().and_then(BatchId::parse);
    if id.is_none() {
        tracing::debug!(
            ?value,
            "Ignored a batch id that is not 32 hexadecimal digits."
        );
    }
    id
}

/// The body as the profiles keep it.
pub(super) fn keep_compressed(body: profcol_net::Compressed) -> CompressedWire {
    CompressedWire {
        encoding: body.encoding.name(),
        bytes: body.bytes,
        decompress: |encoding, bytes, len| {
            decompress(Encoding::from_name(encoding)?, bytes, len).ok()
        },
    }
}

/// The metadata of a request, as processors and exporters see it.
fn metadata(headers: &HeaderMap) -> Metadata {
    let mut metadata = Metadata::default();
    for (name, value) in headers {
        if let Ok(value) = value.to_str() {
            metadata.add(name.as_str(), value);
        }
    }
    metadata
}

fn warning(repaired: &BTreeMap<Reason, usize>) -> String {
    let mut warning = String::new();
    for (reason, samples) in repaired {
        let separator = if warning.is_empty() {
            "dropped bad samples: "
        } else {
            ", "
        };
        // Writing to a string cannot fail.
        let _ = write!(warning, "{separator}{samples} ({reason})");
    }
    warning
}
