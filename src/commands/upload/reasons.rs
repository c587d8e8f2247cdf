//! Reports why uploading fails while it runs.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use profcol_component::{Reason, Status, StatusBoard};
use profcol_net::{Hint, grpc};

use super::progress::{Progress, print_line};

/// Repeats the same reason at most this often.
const REPEAT_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of distinct reasons per interval.
const MAX_REASONS: usize = 16;
/// Grace period before an unresponsive server is reported.
const QUIET_PERIOD: Duration = Duration::from_secs(3);
/// How often to check whether a reason persists.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

pub struct Reasons {
    address: String,
    reported: Mutex<HashMap<String, Instant>>,
}

impl Reasons {
    pub fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            reported: Mutex::default(),
        }
    }

    pub fn report(&self, reason: &Reason) {
        let reason = on_command_line(reason);
        if self.is_due(&reason, Instant::now()) {
            print_line(&format!("Upload failing: {reason}"));
        }
    }

    /// Reports an unresponsive server, and repeats lasting reasons.
    pub async fn repeat(&self, board: &StatusBoard, progress: &Progress) -> Infallible {
        tokio::time::sleep(QUIET_PERIOD).await;
        if !progress.has_begun() && self.is_silent() {
            print_line(&format!(
                "Upload has not started: no response from {} for {} seconds; check the address and firewalls",
                self.address,
                QUIET_PERIOD.as_secs()
            ));
        }
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            for status in board.snapshot().values() {
                if let Status::RecoverableError(reason) = status {
                    self.report(reason);
                }
            }
        }
    }

    fn is_silent(&self) -> bool {
        self.reported.lock().is_empty()
    }

    fn is_due(&self, reason: &str, now: Instant) -> bool {
        let mut reported = self.reported.lock();
        reported.retain(|_, when| now.saturating_duration_since(*when) < REPEAT_INTERVAL);
        let is_due = !reported.contains_key(reason) && reported.len() < MAX_REASONS;
        if is_due {
            reported.insert(reason.to_owned(), now);
        }
        is_due
    }
}

/// The reason, with flags in place of configuration options.
fn on_command_line(reason: &Reason) -> String {
    let status = reason.downcast_ref::<grpc::Status>();
    match status.and_then(|status| Some((status, advice(status.hint?)?))) {
        Some((status, advice)) => format!("{}; {advice}", status.clone().with_hint(None)),
        None => reason.to_string(),
    }
}

/// `None` if the hint names no option that is a flag here.
fn advice(hint: Hint) -> Option<&'static str> {
    match hint {
        Hint::DisableTls => Some("if the server does not use TLS, use grpc:// or --insecure"),
        Hint::SetCaFile => {
            Some("pass the CA certificate that signed the server's certificate with --ca-file")
        }
        Hint::OverrideServerName => Some(
            "use a name from the certificate as server, or trust any certificate with --insecure-skip-verify",
        ),
        Hint::SetClientCertificate => Some(
            "the server may require a client certificate: set exporters.parca.tls.cert_file and key_file with --set",
        ),
        Hint::CheckClientCertificate => {
            Some("the server rejected the client certificate: check exporters.parca.tls.cert_file")
        }
        Hint::CheckCredentials => Some("check the file of --bearer-token-file"),
        Hint::CheckEndpointAndDns
        | Hint::CheckEndpointAndFirewalls
        | Hint::CheckRoutesAndFirewalls
        | Hint::StartServer
        | Hint::CheckSocketPath
        | Hint::CheckSocketPermissions
        | Hint::CheckGrpc
        | Hint::CheckGrpcAndTls
        | Hint::RenewCertificate
        | Hint::IssueCertificate
        | Hint::NoHttp2 => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_repeated_after_a_minute_and_a_new_one_reported_at_once() {
        let reasons = Reasons::new("parca:7070");
        let began = Instant::now();
        let check = |reason, seconds, is_due| {
            let now = began + Duration::from_secs(seconds);
            assert_eq!(
                reasons.is_due(reason, now),
                is_due,
                "{reason} at {seconds} s"
            );
        };
        check("refused", 0, true);
        check("refused", 59, false);
        check("no route", 59, true);
        check("refused", 60, true);
        check("no route", 61, false);
        check("refused", 119, false);
        check("refused", 120, true);
    }

    #[test]
    fn advice_names_flags() {
        let refused = grpc::Status::new(grpc::Code::Unavailable, "EOF");
        let text = |status: grpc::Status| on_command_line(&Reason::new(status));
        assert_eq!(
            text(refused.clone().with_hint(Hint::DisableTls)),
            "rpc error: code = Unavailable desc = EOF; if the server does not use TLS, use grpc:// or --insecure"
        );
        assert_eq!(
            text(refused.clone().with_hint(Hint::NoHttp2)),
            "rpc error: code = Unavailable desc = EOF; the endpoint does not support HTTP/2"
        );
        assert_eq!(text(refused.clone()), refused.to_string());
        assert_eq!(on_command_line(&Reason::new("disk full")), "disk full");
    }

    #[test]
    fn distinct_reasons_are_bounded() {
        let reasons = Reasons::new("parca:7070");
        let began = Instant::now();
        let due = (0..1000).filter(|number| reasons.is_due(&number.to_string(), began));
        assert_eq!(due.count(), MAX_REASONS);
        assert!(reasons.is_due("later", began + REPEAT_INTERVAL));
    }
}
