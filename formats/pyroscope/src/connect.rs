//! What Connect says of calls with one request and one answer.

use std::fmt;

use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::json;

/// How a message is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    Proto,
    Json,
}

/// A method of the services that are answered, by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    ProfileTypes,
    LabelNames,
    LabelValues,
    Series,
    SelectSeries,
    SelectMergeStacktraces,
    SelectMergeProfile,
    Diff,
    GetProfileStats,
    /// Settings of Grafana's app; there are none.
    GetSettings,
    /// Another one of these services.
    Unknown,
}

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub code: Code,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    InvalidArgument,
    DeadlineExceeded,
    PermissionDenied,
    ResourceExhausted,
    Unimplemented,
    Internal,
    Unavailable,
    Unauthenticated,
}

const QUERIER: &str = "/querier.v1.QuerierService/";
const SETTINGS: &str = "/settings.v1.SettingsService/";

impl Method {
    /// `None` where the path is of no service that is answered.
    pub fn of_path(path: &str) -> Option<Self> {
        if let Some(method) = path.strip_prefix(SETTINGS) {
            return Some(match method {
                "Get" => Self::GetSettings,
                _ => Self::Unknown,
            });
        }
        Some(match path.strip_prefix(QUERIER)? {
            "ProfileTypes" => Self::ProfileTypes,
            "LabelNames" => Self::LabelNames,
            "LabelValues" => Self::LabelValues,
            "Series" => Self::Series,
            "SelectSeries" => Self::SelectSeries,
            "SelectMergeStacktraces" => Self::SelectMergeStacktraces,
            "SelectMergeProfile" => Self::SelectMergeProfile,
            "Diff" => Self::Diff,
            "GetProfileStats" => Self::GetProfileStats,
            _ => Self::Unknown,
        })
    }
}

impl Codec {
    /// By the header `content-type`, which may say more behind a semicolon.
    pub fn of_content_type(content_type: &str) -> Option<Self> {
        let media_type = content_type.split(';').next().unwrap_or("").trim();
        let is = |known: &str| media_type.eq_ignore_ascii_case(known);
        match () {
            () if is("application/proto") => Some(Self::Proto),
            () if is("application/json") => Some(Self::Json),
            () => None,
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::Proto => "application/proto",
            Self::Json => "application/json",
        }
    }

    pub fn decode<T: Message + Default + DeserializeOwned>(
        self,
        body: &[u8],
    ) -> Result<T, Failure> {
        let wrong = |error: &dyn fmt::Display| {
            Failure::invalid(format!("the request cannot be read: {error}"))
        };
        match self {
            Self::Proto => T::decode(body).map_err(|error| wrong(&error)),
            Self::Json => json::read(body).map_err(|error| wrong(&error)),
        }
    }

    pub fn encode<T: Message + Serialize>(self, answer: &T) -> Result<Vec<u8>, Failure> {
        match self {
            Self::Proto => Ok(answer.encode_to_vec()),
            Self::Json => serde_json::to_vec(answer).map_err(|error| Failure {
                code: Code::Internal,
                message: format!("the answer cannot be written as JSON: {error}"),
            }),
        }
    }
}

impl Failure {
    pub fn invalid(message: impl Into<String>) -> Self {
        Self {
            code: Code::InvalidArgument,
            message: message.into(),
        }
    }

    pub fn unimplemented(message: impl Into<String>) -> Self {
        Self {
            code: Code::Unimplemented,
            message: message.into(),
        }
    }
}

impl Code {
    pub fn name(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::PermissionDenied => "permission_denied",
            Self::ResourceExhausted => "resource_exhausted",
            Self::Unimplemented => "unimplemented",
            Self::Internal => "internal",
            Self::Unavailable => "unavailable",
            Self::Unauthenticated => "unauthenticated",
        }
    }

    /// The status of the HTTP response.
    pub fn http_status(self) -> u16 {
        match self {
            Self::InvalidArgument => 400,
            Self::Unauthenticated => 401,
            Self::PermissionDenied => 403,
            Self::ResourceExhausted => 429,
            Self::Internal => 500,
            Self::Unimplemented => 501,
            Self::Unavailable => 503,
            Self::DeadlineExceeded => 504,
        }
    }
}
