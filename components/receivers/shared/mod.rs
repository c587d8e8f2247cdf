//! What receivers that listen have in common, and those that read files.

mod offer;

use std::sync::Arc;
use std::time::Duration;

use profcol_admission::Admission;
use profcol_component::{BuildContext, BuildError, Refusal, StartError, Stop};
use profcol_net::auth::ServerAuth;
use profcol_net::grpc::{Code, Status};
use profcol_net::{AuthSettings, ServerError};
use tokio::time::Instant;

pub use self::offer::offer;

/// How long running requests may take after a stop was asked for.
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

/// What decides which requests of a server there is memory for. Those that it refuses are counted.
pub fn admission(context: &BuildContext, transport: &str) -> Admission {
    let refused = context.meter.counter(
        "profcol_receiver_refused_requests",
        "Requests refused before they were read, since there was no memory for them.",
        &[
            ("receiver", &context.id.to_string()),
            ("transport", transport),
        ],
    );
    context.admission.counting(refused)
}

/// Why a server could not be set up; `path` is where its settings stand.
pub fn not_started(path: &str, error: ServerError) -> StartError {
    StartError(match error {
        ServerError::Bind(error) => format!("{path}::endpoint: {error}"),
        ServerError::Tls(error) => format!("{path}::tls: {error}"),
        ServerError::Settings(error) => format!("{path}: {error}"),
    })
}

/// Resolves after a stop was asked for, to the moment by which running requests must be done.
pub async fn deadline(stop: &Stop) -> Instant {
    stop.deadline(GRACE).await
}

/// The Collector's mapping: what may be sent again is `UNAVAILABLE`, what must not is `INTERNAL`.
pub fn status(refusal: Refusal) -> Status {
    match refusal {
        Refusal::Retry { reason, after } => {
            let status = Status::new(Code::Unavailable, reason);
            match after {
                Some(after) => status.with_retry_delay(after),
                None => status,
            }
        }
        Refusal::Permanent { reason } => Status::new(Code::Internal, reason),
        Refusal::TooLarge { reason, .. } => Status::new(Code::ResourceExhausted, reason),
    }
}
