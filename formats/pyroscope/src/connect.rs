//! Unary calls of the Connect protocol.

use std::fmt;

use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::json;

/// The encoding of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    Proto,
    Json,
}

/// A supported service method, by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectMethod {
    ProfileTypes,
    LabelNames,
    LabelValues,
    Series,
    SelectSeries,
    SelectMergeStacktraces,
    SelectMergeProfile,
    Diff,
    GetProfileStats,
    /// Settings of Grafana's app; always empty.
    GetSettings,
    /// Another method of these services.
    Unknown,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectRpcError {
    pub code: ConnectCode,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectCode {
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

impl ConnectMethod {
    /// `None` for paths of other services.
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
    /// Parses the `content-type` header, which may have parameters after a semicolon.
    pub fn of_content_type(content_type: &str) -> Option<Self> {
        let media_type = content_type.split(';').next().unwrap_or("").trim();
        let is = |expected: &str| media_type.eq_ignore_ascii_case(expected);
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
    ) -> Result<T, ConnectRpcError> {
        let wrong = |error: &dyn fmt::Display| {
            ConnectRpcError::invalid(format!("invalid request: {error}"))
        };
        match self {
            Self::Proto => T::decode(body).map_err(|error| wrong(&error)),
            Self::Json => json::read(body).map_err(|error| wrong(&error)),
        }
    }

    pub fn encode<T: Message + Serialize>(self, response: &T) -> Result<Vec<u8>, ConnectRpcError> {
        match self {
            Self::Proto => Ok(response.encode_to_vec()),
            Self::Json => serde_json::to_vec(response).map_err(|error| ConnectRpcError {
                code: ConnectCode::Internal,
                message: format!("failed to encode the response as JSON: {error}"),
            }),
        }
    }
}

impl ConnectRpcError {
    pub fn invalid(message: impl Into<String>) -> Self {
        Self {
            code: ConnectCode::InvalidArgument,
            message: message.into(),
        }
    }

    pub fn unimplemented(message: impl Into<String>) -> Self {
        Self {
            code: ConnectCode::Unimplemented,
            message: message.into(),
        }
    }
}

impl ConnectCode {
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

    /// The HTTP status of the response.
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
