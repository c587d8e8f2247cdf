//! Shared by receivers that listen or read files.

mod deduplicator;
mod memory;
mod offer;
mod undelivered;

use std::sync::Arc;
use std::time::Duration;

use profcol_admission::Admission;
use profcol_component::{BuildContext, BuildError, Listening, Refusal, StartError, Stop};
use profcol_net::auth::ServerAuth;
use profcol_net::grpc::{Code, Status};
use profcol_net::{AuthSettings, BoundAddr, GrpcServerSettings, ServerError, Transport};
use tokio::time::Instant;

pub use self::deduplicator::{DeduplicateConfig, Deduplicator};
pub use self::memory::Memory;
#[cfg(feature = "parca")]
pub use self::offer::offer;
pub use self::offer::offer_within;
pub use self::undelivered::WhenUndelivered;

/// How long requests in flight may take after a stop.
const GRACE: Duration = Duration::from_secs(5);

/// The extension that `auth` names.
pub fn authenticator(
    settings: Option<&AuthSettings>,
    context: &BuildContext,
) -> Result<Option<Arc<dyn ServerAuth>>, BuildError> {
    let Some(settings) = settings else {
        return Ok(None);
    };
    let auth = context.extension::<Arc<dyn ServerAuth>>(&settings.authenticator)?;
    Ok(Some(Arc::clone(&auth)))
}

/// The admission control of a server, with a counter of refused requests.
pub fn admission(context: &BuildContext, transport: &str) -> Admission {
    let refused = context.meter.counter(
        "profcol_receiver_refused_requests",
        "Requests refused before they were read, for lack of memory.",
        &[
            ("receiver", &context.id.to_string()),
            ("transport", transport),
        ],
    );
    context.admission.counting(refused)
}

/// What the server of a gRPC receiver needs, for `profcol doctor`.
pub fn grpc_listening(check: &'static str, settings: &GrpcServerSettings) -> Listening {
    let is_unix = settings.transport == Transport::Unix;
    let is_protected = settings.tls.is_some() || settings.auth.is_some();
    Listening::new(check, &settings.endpoint, is_unix, is_protected)
}

/// Warns if everyone can connect to a server that has started.
pub fn warn_if_exposed(listening: &Listening, bound: &BoundAddr) {
    if let BoundAddr::Tcp(address) = bound
        && listening.is_exposed(&[*address])
    {
        tracing::warn!(
            endpoint = %address,
            "Every host that reaches this one can connect, without a password and unencrypted. Set `endpoint` to one address, or set `tls` and `auth`."
        );
    }
}

/// Why a server failed to start; `path` is the path of its settings.
pub fn not_started(path: &str, error: ServerError) -> StartError {
    StartError::new(error.at(path))
}

/// Resolves after a stop, to the deadline for requests in flight.
pub async fn deadline(stop: &Stop) -> Instant {
    stop.deadline(GRACE).await
}

/// The Collector's mapping: retryable is `UNAVAILABLE`, permanent is `INTERNAL`.
pub fn status(refusal: Refusal) -> Status {
    match refusal {
        Refusal::Retry { reason, after } => {
            let status = Status::new(Code::Unavailable, reason.to_string());
            match after {
                Some(after) => status.with_retry_delay(after),
                None => status,
            }
        }
        Refusal::Permanent { reason } => Status::new(Code::Internal, reason.to_string()),
        Refusal::TooLarge { reason, .. } => {
            Status::new(Code::ResourceExhausted, reason.to_string())
        }
    }
}
