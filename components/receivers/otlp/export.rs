//! Handles a request of either protocol: checks it, pushes it and answers.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;

use ::http::HeaderMap;
use profcol_admission::{Admission, Reservation};
use profcol_component::{Batch, Finalizer, Metadata, Outcome, Output, Refusal};
use profcol_net::Encoding;
use profcol_net::compress::decompress;
use profcol_net::grpc::Status;
use profcol_otlp::service::PartialSuccess;
use profcol_profile::{CompressedWire, Reason, Received, Validation};
use tokio::sync::oneshot;

use crate::shared::status;

/// Moves checked messages into the pipelines.
pub(super) struct Export {
    output: Output,
    pub(super) admission: Admission,
    pub(super) validation: Validation,
    until_delivered: bool,
}

impl Export {
    pub(super) fn new(
        output: Output,
        admission: Admission,
        validation: Validation,
        until_delivered: bool,
    ) -> Self {
        Self {
            output,
            admission,
            validation,
            until_delivered,
        }
    }

    pub(super) async fn push(
        &self,
        received: Received,
        mut reserved: Reservation,
        metadata: Metadata,
        peer: Option<IpAddr>,
    ) -> Result<PartialSuccess, Status> {
        let Received { profiles, repaired } = received;
        self.output
            .count_failed(repaired.values().sum::<usize>() as u64);
        if !profiles.is_empty() {
            // For processors that decode the batch.
            reserved.resize(profiles.counts().undecoded_size)?;
            let batch = Batch::new(profiles).with_metadata(metadata);
            let delivering = self.deliver(batch.with_peer(peer), reserved);
            delivering.await.map_err(status)?;
        }
        Ok(PartialSuccess {
            rejected_profiles: 0,
            error_message: warning(&repaired),
        })
    }

    /// The reservation is held until the exporters' queues have the batch.
    async fn deliver(&self, mut batch: Batch, reserved: Reservation) -> Result<(), Refusal> {
        if !self.until_delivered {
            return self.output.push(batch).await;
        }
        let (report, outcome) = oneshot::channel();
        let report = parking_lot::Mutex::new(Some(report));
        batch.finalizers.add(Finalizer::new(move |outcome| {
            let report = report.lock().take();
            // Fails if the client disconnected.
            let _ = report.map(|report| report.send(outcome));
        }));
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
pub(super) fn metadata(headers: &HeaderMap) -> Metadata {
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
