//! Shared by OTLP over gRPC and over HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use profcol_component::{Batch, BatchId, BuildContext, BuildError, Delivered, Reason, Refusal};
use profcol_config::{ComponentId, Headers, Problems};
use profcol_net::auth::ClientAuth;
use profcol_net::retry::RetryDecision;
use profcol_net::{AuthSettings, Chunks, ClientError, Content, Encoding, ErrorAt};
use profcol_otlp::service::PartialSuccess;
use profcol_profile::Profiles;

/// Maximum length of quoted text of a destination.
pub(crate) const MAX_REASON_LEN: usize = 1000;

/// The user agent of requests.
pub(crate) const USER_AGENT: &str = concat!("profcol/", env!("CARGO_PKG_VERSION"));

/// The extension that `auth` names.
pub(crate) fn client_auth(
    settings: Option<&AuthSettings>,
    context: &BuildContext,
) -> Result<Option<Arc<dyn ClientAuth>>, BuildError> {
    let Some(settings) = settings else {
        return Ok(None);
    };
    let auth = context.extension::<Arc<dyn ClientAuth>>(&settings.authenticator)?;
    Ok(Some(Arc::clone(&auth)))
}

/// Why a client could not be created, with the path of the setting.
pub(crate) fn not_created(id: &ComponentId, error: ClientError) -> ErrorAt<ClientError> {
    error.at(format!("exporters::{id}"))
}

/// Profiles in protobuf; unchanged ones keep the compressed bytes in which they were received.
pub(crate) struct Protobuf<'a>(pub(crate) &'a Profiles);

impl Content for Protobuf<'_> {
    fn plain(&self) -> Chunks {
        self.0.to_pieces().into_iter().collect()
    }

    fn compressed(&self, encoding: Encoding) -> Option<Bytes> {
        let compressed = self.0.compressed()?;
        (compressed.encoding == encoding.name()).then(|| compressed.bytes.clone())
    }
}

/// The headers of a request with this batch. The receiver `otlp` can drop duplicates by its id.
pub(crate) fn headers_of(batch: &Batch) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Ok(id) = HeaderValue::try_from(batch.id.to_string()) {
        headers.insert(BatchId::HEADER, id);
    }
    headers
}

/// Refuses a batch id configured in the option `key`: all batches would be one.
pub(crate) fn validate_headers(key: &str, headers: &Headers, problems: &mut Problems) {
    let mut names = headers.iter().map(|(name, _)| name);
    if names.any(|name| name.eq_ignore_ascii_case(BatchId::HEADER)) {
        let problem = format!(
            "{} is the id of each batch, which the exporter sets; remove it",
            BatchId::HEADER
        );
        problems.add(key, problem);
    }
}

/// The outcome of a successful request.
pub(crate) fn delivered(partial: PartialSuccess) -> Delivered {
    Delivered {
        rejected_profiles: u64::try_from(partial.rejected_profiles).unwrap_or(0),
        message: truncated(partial.error_message),
        undelivered: Vec::new(),
    }
}

/// The destination's message, truncated for logs.
pub(crate) fn truncated(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_REASON_LEN));
    text
}

/// The outcome of a failed request.
pub(crate) fn refusal(verdict: RetryDecision, reason: impl Into<Reason>) -> Refusal {
    match verdict {
        RetryDecision::Retry => Refusal::retry(reason),
        RetryDecision::Throttle(delay) => Refusal::retry_after(reason, delay),
        RetryDecision::Permanent => Refusal::permanent(reason),
    }
}

/// No server for profiles has a lower limit.
const MIN_LEARNED_LIMIT: usize = 64 << 10;

/// Whether a number stands for "not set", and is left out of what is printed.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is serde's"
)]
pub(crate) fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The largest message that the destination accepts: as configured or learned.
#[derive(Debug)]
pub(crate) struct SizeLimit(AtomicUsize);

impl SizeLimit {
    /// `mib` as configured; 0 means unknown.
    pub(crate) fn new(mib: u32) -> Self {
        let bytes = (mib as usize).saturating_mul(1024 * 1024);
        Self(AtomicUsize::new(if bytes == 0 {
            usize::MAX
        } else {
            bytes
        }))
    }

    /// Refuses a message that the destination would refuse.
    pub(crate) fn check(&self, bytes: usize) -> Result<(), Refusal> {
        let limit_bytes = self.0.load(Ordering::Relaxed);
        if bytes <= limit_bytes {
            return Ok(());
        }
        let reason =
            format!("message of {bytes} bytes exceeds the destination's limit of {limit_bytes}");
        Err(Refusal::TooLarge {
            reason: reason.into(),
            limit_bytes,
        })
    }

    /// Learns that a message of `bytes` was too large; `limit` is the limit that the destination reported.
    /// Without one, half of the size is tried. A guess below the minimum is not
    /// kept, so that a destination that refuses everything for a while does not cause tiny messages forever.
    pub(crate) fn learn(
        &self,
        bytes: usize,
        limit: Option<usize>,
        reason: impl Into<Reason>,
    ) -> Refusal {
        let named = limit.filter(|limit| (1..bytes).contains(limit));
        let limit_bytes = named.unwrap_or(bytes / 2);
        if named.is_some() || limit_bytes >= MIN_LEARNED_LIMIT {
            self.0.fetch_min(limit_bytes, Ordering::Relaxed);
        }
        tracing::info!(
            bytes,
            limit_bytes,
            "The destination has a lower message size limit; splitting batches."
        );
        Refusal::TooLarge {
            reason: reason.into(),
            limit_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_configured_or_learned() {
        let limit = SizeLimit::new(1);
        assert_eq!(limit.check(1 << 20), Ok(()));
        assert!(matches!(
            limit.check((1 << 20) + 1),
            Err(Refusal::TooLarge {
                limit_bytes: 1_048_576,
                ..
            })
        ));
        let learned = limit.learn(1000, Some(400), "no");
        assert!(matches!(
            learned,
            Refusal::TooLarge {
                limit_bytes: 400,
                ..
            }
        ));
        assert!(limit.check(401).is_err());
        assert_eq!(SizeLimit::new(0).check(usize::MAX), Ok(()));
    }

    #[test]
    fn guesses_are_kept_while_they_are_plausible() {
        let check = |bytes: usize, named: Option<usize>, tried: usize, kept: usize| {
            let limit = SizeLimit::new(1);
            let learned = limit.learn(bytes, named, "no");
            let Refusal::TooLarge { limit_bytes, .. } = learned else {
                panic!("{learned:?}");
            };
            assert_eq!(limit_bytes, tried, "{bytes} {named:?}");
            assert_eq!(limit.0.load(Ordering::Relaxed), kept, "{bytes} {named:?}");
        };
        let configured = 1 << 20;
        check(400_000, None, 200_000, 200_000);
        check(300, None, 150, configured);
        check(300, Some(100), 100, 100);
        check(300, Some(0), 150, configured);
        check(400_000, Some(500_000), 200_000, 200_000);
    }
}
