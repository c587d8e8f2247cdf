//! Classifies failures by the OTLP specification: retry, retry later, or give up.

use std::time::{Duration, SystemTime};

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};

use crate::grpc::{Code, Status};

/// How to handle a failed delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    /// Retry with the client's own backoff.
    Retry,
    /// Retry after this delay.
    Throttle(Duration),
    /// Not retryable.
    Permanent,
}

/// By gRPC status. RESOURCE_EXHAUSTED is retryable only with `RetryInfo`.
pub fn of_grpc(status: &Status) -> RetryDecision {
    let retry = match status.code {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => true,
        Code::ResourceExhausted => status.retry_delay.is_some(),
        _ => false,
    };
    match (retry, status.retry_delay) {
        (false, _) => RetryDecision::Permanent,
        (true, Some(delay)) if !delay.is_zero() => RetryDecision::Throttle(delay),
        (true, _) => RetryDecision::Retry,
    }
}

/// By HTTP status and `Retry-After`; `None` for success.
pub fn of_http(status: StatusCode, headers: &HeaderMap, now: SystemTime) -> Option<RetryDecision> {
    if status.is_success() {
        return None;
    }
    let delay = match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            retry_after(headers, now)
        }
        StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => None,
        _ => return Some(RetryDecision::Permanent),
    };
    Some(delay.map_or(RetryDecision::Retry, RetryDecision::Throttle))
}

/// `Retry-After`, in seconds or as a date. Past dates mean no delay.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match value.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => httpdate::parse_http_date(value)
            .ok()?
            .duration_since(now)
            .ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classifies_grpc_codes_by_the_specification() {
        for code in Code::ALL {
            let expected = match code {
                Code::Cancelled
                | Code::DeadlineExceeded
                | Code::Aborted
                | Code::OutOfRange
                | Code::Unavailable
                | Code::DataLoss => RetryDecision::Retry,
                _ => RetryDecision::Permanent,
            };
            assert_eq!(of_grpc(&Status::new(code, "")), expected, "{code}");
        }
        let wait = Duration::from_secs(3);
        for (code, expected) in [
            (Code::ResourceExhausted, RetryDecision::Throttle(wait)),
            (Code::Unavailable, RetryDecision::Throttle(wait)),
            (Code::InvalidArgument, RetryDecision::Permanent),
        ] {
            assert_eq!(
                of_grpc(&Status::new(code, "").with_retry_delay(wait)),
                expected,
                "{code}"
            );
        }
        let now = Status::new(Code::ResourceExhausted, "").with_retry_delay(Duration::ZERO);
        assert_eq!(of_grpc(&now), RetryDecision::Retry);
    }

    #[test]
    fn classifies_http_statuses_by_the_specification() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777); // 1994-11-06 08:49:37
        let throttle = |seconds| Some(RetryDecision::Throttle(Duration::from_secs(seconds)));
        for (status, after, expected) in [
            (200, "", None),
            (202, "7", None),
            (429, "", Some(RetryDecision::Retry)),
            (429, "7", throttle(7)),
            (503, "Sun, 06 Nov 1994 08:49:47 GMT", throttle(10)),
            (
                503,
                "Sun, 06 Nov 1994 08:00:00 GMT",
                Some(RetryDecision::Retry),
            ),
            (503, "soon", Some(RetryDecision::Retry)),
            (502, "7", Some(RetryDecision::Retry)),
            (504, "", Some(RetryDecision::Retry)),
            (400, "7", Some(RetryDecision::Permanent)),
            (500, "", Some(RetryDecision::Permanent)),
            (301, "", Some(RetryDecision::Permanent)),
        ] {
            let mut headers = HeaderMap::new();
            if !after.is_empty() {
                headers.insert(RETRY_AFTER, after.parse().unwrap());
            }
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(of_http(status, &headers, now), expected, "{status} {after}");
        }
    }
}
