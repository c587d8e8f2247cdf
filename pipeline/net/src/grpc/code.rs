//! The seventeen gRPC status codes and their mapping to HTTP.

use std::fmt;

/// Outcome of a gRPC call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Code {
    Ok = 0,
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

impl Code {
    /// All codes in numeric order.
    pub const ALL: [Code; 17] = [
        Code::Ok,
        Code::Cancelled,
        Code::Unknown,
        Code::InvalidArgument,
        Code::DeadlineExceeded,
        Code::NotFound,
        Code::AlreadyExists,
        Code::PermissionDenied,
        Code::ResourceExhausted,
        Code::FailedPrecondition,
        Code::Aborted,
        Code::OutOfRange,
        Code::Unimplemented,
        Code::Internal,
        Code::Unavailable,
        Code::DataLoss,
        Code::Unauthenticated,
    ];

    /// The code with this number; undefined numbers are [`Code::Unknown`].
    pub fn from_number(number: i32) -> Code {
        usize::try_from(number)
            .ok()
            .and_then(|number| Code::ALL.get(number).copied())
            .unwrap_or(Code::Unknown)
    }

    pub fn number(self) -> u8 {
        self as u8
    }

    /// The gRPC code for a plain HTTP response, such as a proxy's error page.
    pub fn from_http_answer(status: http::StatusCode) -> Code {
        match status.as_u16() {
            400 => Code::Internal,
            401 => Code::Unauthenticated,
            403 => Code::PermissionDenied,
            404 => Code::Unimplemented,
            429 | 502 | 503 | 504 => Code::Unavailable,
            _ => Code::Unknown,
        }
    }

    /// The OTLP/HTTP status for `self`.
    pub fn to_http(self) -> http::StatusCode {
        use http::StatusCode;
        match self {
            Code::Ok => StatusCode::OK,
            Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss => StatusCode::SERVICE_UNAVAILABLE,
            Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Code::InvalidArgument => StatusCode::BAD_REQUEST,
            Code::Unauthenticated => StatusCode::UNAUTHORIZED,
            Code::PermissionDenied => StatusCode::FORBIDDEN,
            Code::Unimplemented => StatusCode::NOT_FOUND,
            Code::Unknown
            | Code::NotFound
            | Code::AlreadyExists
            | Code::FailedPrecondition
            | Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The gRPC code for an OTLP/HTTP response status.
    pub fn from_http(status: http::StatusCode) -> Code {
        match status.as_u16() {
            200..=299 => Code::Ok,
            400 => Code::InvalidArgument,
            401 => Code::Unauthenticated,
            403 => Code::PermissionDenied,
            404 => Code::Unimplemented,
            429 => Code::ResourceExhausted,
            502..=504 => Code::Unavailable,
            _ => Code::Unknown,
        }
    }
}

/// The name as printed by grpc-go and thus in the Collector's logs.
impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Code::Ok => "OK",
            Code::Cancelled => "Canceled",
            Code::Unknown => "Unknown",
            Code::InvalidArgument => "InvalidArgument",
            Code::DeadlineExceeded => "DeadlineExceeded",
            Code::NotFound => "NotFound",
            Code::AlreadyExists => "AlreadyExists",
            Code::PermissionDenied => "PermissionDenied",
            Code::ResourceExhausted => "ResourceExhausted",
            Code::FailedPrecondition => "FailedPrecondition",
            Code::Aborted => "Aborted",
            Code::OutOfRange => "OutOfRange",
            Code::Unimplemented => "Unimplemented",
            Code::Internal => "Internal",
            Code::Unavailable => "Unavailable",
            Code::DataLoss => "DataLoss",
            Code::Unauthenticated => "Unauthenticated",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_found_by_its_number() {
        for (number, code) in Code::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(code.number()), number);
            assert_eq!(Code::from_number(number as i32), code);
        }
        assert_eq!(Code::from_number(17), Code::Unknown);
        assert_eq!(Code::from_number(-1), Code::Unknown);
    }

    #[test]
    fn retryable_codes_stay_retryable_through_http() {
        for code in [Code::Unavailable, Code::DataLoss, Code::Aborted] {
            assert_eq!(Code::from_http(code.to_http()), Code::Unavailable);
        }
    }
}
