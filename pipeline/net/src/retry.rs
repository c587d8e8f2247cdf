//! What the OTLP specification makes of a failure: try again, try again later, or give up.

use std::time::{Duration, SystemTime};

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};

use crate::grpc::{Code, Status};

/// What to do with data whose delivery failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send it again, with one's own back-off.
    Retry,
    /// Send it again, but not before this has passed.
    Throttle(Duration),
    /// The answer will not change: give up.
    Permanent,
}

/// By gRPC status. A server that is out of resources says by `RetryInfo` that this will pass.
pub fn of_grpc(status: &Status) -> Verdict {
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
        (false, _) => Verdict::Permanent,
        (true, Some(delay)) if !delay.is_zero() => Verdict::Throttle(delay),
        (true, _) => Verdict::Retry,
    }
}

/// By HTTP status and `Retry-After`; `None` for success.
pub fn of_http(status: StatusCode, headers: &HeaderMap, now: SystemTime) -> Option<Verdict> {
    if status.is_success() {
        return None;
    }
    let delay = match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            retry_after(headers, now)
        }
        StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => None,
        _ => return Some(Verdict::Permanent),
    };
    Some(delay.map_or(Verdict::Retry, Verdict::Throttle))
}

/// `Retry-After`, in seconds or as a date. A date that has passed asks for no delay.
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
    fn grpc_codes_are_judged_by_the_specification() {
        for code in Code::ALL {
            let expected = match code {
                Code::Cancelled
                | Code::DeadlineExceeded
                | Code::Aborted
                | Code::OutOfRange
                | Code::Unavailable
                | Code::DataLoss => Verdict::Retry,
                _ => Verdict::Permanent,
            };
            assert_eq!(of_grpc(&Status::new(code, "")), expected, "{code}");
        }
        let wait = Duration::from_secs(3);
        for (code, expected) in [
            (Code::ResourceExhausted, Verdict::Throttle(wait)),
            (Code::Unavailable, Verdict::Throttle(wait)),
            (Code::InvalidArgument, Verdict::Permanent),
        ] {
            assert_eq!(
                of_grpc(&Status::new(code, "").with_retry_delay(wait)),
                expected,
                "{code}"
            );
        }
        let now = Status::new(Code::ResourceExhausted, "").with_retry_delay(Duration::ZERO);
        assert_eq!(of_grpc(&now), Verdict::Retry);
    }

    #[test]
    fn http_statuses_are_judged_by_the_specification() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777); // 1994-11-06 08:49:37
        let throttle = |seconds| Some(Verdict::Throttle(Duration::from_secs(seconds)));
        for (status, after, expected) in [
            (200, "", None),
            (202, "7", None),
            (429, "", Some(Verdict::Retry)),
            (429, "7", throttle(7)),
            (503, "Sun, 06 Nov 1994 08:49:47 GMT", throttle(10)),
            (503, "Sun, 06 Nov 1994 08:00:00 GMT", Some(Verdict::Retry)),
            (503, "soon", Some(Verdict::Retry)),
            (502, "7", Some(Verdict::Retry)),
            (504, "", Some(Verdict::Retry)),
            (400, "7", Some(Verdict::Permanent)),
            (500, "", Some(Verdict::Permanent)),
            (301, "", Some(Verdict::Permanent)),
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
