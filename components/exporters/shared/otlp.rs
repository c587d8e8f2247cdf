//! What sending OTLP over gRPC and over HTTP have in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use profcol_component::{BuildContext, BuildError, Delivered, Refusal, StartError};
use profcol_config::ComponentId;
use profcol_net::auth::ClientAuth;
use profcol_net::retry::Verdict;
use profcol_net::{AuthSettings, Chunks, ClientError, Content, Encoding};
use profcol_profile::Profiles;
use profcol_profile::service::PartialSuccess;

/// No text of a destination is quoted at greater length.
pub(crate) const MAX_REASON_LEN: usize = 1000;

/// How we introduce ourselves.
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

/// Why a client could not be set up, with the path of the setting.
pub(crate) fn not_started(id: &ComponentId, error: ClientError) -> StartError {
    StartError(match error {
        ClientError::Endpoint(error) => format!("exporters::{id}::endpoint: {error}"),
        ClientError::Tls(error) => format!("exporters::{id}::tls: {error}"),
        ClientError::Settings(error) => format!("exporters::{id}: {error}"),
    })
}

/// Profiles in protobuf, in the compressed bytes that they came in where nothing changed them.
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

/// What the engine is told of a request that was answered with success.
pub(crate) fn delivered(partial: PartialSuccess) -> Delivered {
    Delivered {
        rejected_profiles: u64::try_from(partial.rejected_profiles).unwrap_or(0),
        message: said(partial.error_message),
    }
}

/// What a destination says, at a length that a log can bear.
pub(crate) fn said(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_REASON_LEN));
    text
}

/// What the engine is told of a request that failed.
pub(crate) fn refusal(verdict: Verdict, reason: String) -> Refusal {
    match verdict {
        Verdict::Retry => Refusal::retry(reason),
        Verdict::Throttle(delay) => Refusal::retry_after(reason, delay),
        Verdict::Permanent => Refusal::permanent(reason),
    }
}

/// No server that takes profiles is set to less.
const MIN_LEARNED_LIMIT: usize = 64 << 10;

/// Whether a number stands for "not set", and is left out of what is printed.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is serde's"
)]
pub(crate) fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The largest message that the destination takes: as configured, or as it has told us since.
#[derive(Debug)]
pub(crate) struct SizeLimit(AtomicUsize);

impl SizeLimit {
    /// `mib` as configured; 0 means that it is not known.
    pub(crate) fn new(mib: u32) -> Self {
        let bytes = (mib as usize).saturating_mul(1024 * 1024);
        Self(AtomicUsize::new(if bytes == 0 {
            usize::MAX
        } else {
            bytes
        }))
    }

    /// Refuses what the destination would refuse, before it is sent.
    pub(crate) fn check(&self, bytes: usize) -> Result<(), Refusal> {
        let limit_bytes = self.0.load(Ordering::Relaxed);
        if bytes <= limit_bytes {
            return Ok(());
        }
        let reason =
            format!("message of {bytes} bytes exceeds the destination's limit of {limit_bytes}");
        Err(Refusal::TooLarge {
            reason,
            limit_bytes,
        })
    }

    /// The destination found a message of `bytes` too large; `limit` is what it named as its limit.
    /// Without that, half of what was refused is tried, and a guess that has become too small is not
    /// kept: a destination that refuses everything for a while must not make us send crumbs for ever.
    pub(crate) fn learn(&self, bytes: usize, limit: Option<usize>, reason: String) -> Refusal {
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
            reason,
            limit_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_what_was_configured_or_learned() {
        let limit = SizeLimit::new(1);
        assert_eq!(limit.check(1 << 20), Ok(()));
        assert!(matches!(
            limit.check((1 << 20) + 1),
            Err(Refusal::TooLarge {
                limit_bytes: 1_048_576,
                ..
            })
        ));
        let learned = limit.learn(1000, Some(400), "no".to_owned());
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
            let learned = limit.learn(bytes, named, "no".to_owned());
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
