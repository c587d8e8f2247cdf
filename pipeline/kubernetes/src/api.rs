//! Requests to the API server: queries and error responses.

use std::time::Duration;

use kube::core::params::{ListParams, WatchParams};
use kube::core::request::Request;
use profcol_printable::with_causes;

use crate::access::ClientError;

/// Objects per page.
const PAGE: u32 = 500;
/// Timeout of a watch, enforced by the server; then it is restarted.
const WATCH_SECONDS: u32 = 290;
/// A watch that is silent for this long, without a bookmark or its end, has lost its connection.
pub const WATCH_TIMEOUT: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 10);

/// A kind of objects, as paths and RBAC rules name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Empty for the core group.
    pub group: &'static str,
    pub plural: &'static str,
    pub is_namespaced: bool,
    /// Whether the metadata of the objects is all that is read.
    pub is_metadata_enough: bool,
}

/// Which objects of a kind.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Empty means all.
    pub namespace: String,
    /// Label selectors; all must match.
    pub labels: Vec<String>,
    /// Field selectors; all must match.
    pub fields: Vec<String>,
}

/// Selects objects of one kind.
#[derive(Clone, Debug)]
pub struct Query {
    resource: Resource,
    path: String,
    selection: Selection,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// A permission is missing.
    #[error("{0}")]
    Forbidden(String),
    /// The server rejects the credentials.
    #[error("{0}")]
    Unauthorized(String),
    /// The server is overloaded, and may say when to retry.
    #[error("{0}")]
    Busy(String, Option<Duration>),
    /// The resource version is too old to continue from.
    #[error("the resource version has expired")]
    Expired,
    #[error("{message} ({code})")]
    Status { message: String, code: u16 },
    #[error("{0} timed out")]
    Timeout(&'static str),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Request(#[from] kube::core::request::Error),
    #[error("{}", with_causes(.0))]
    Transport(#[source] kube::Error),
}

type HttpRequest = http::Request<Vec<u8>>;

// === impl Query ===

impl Query {
    pub fn new(resource: Resource, selection: Selection) -> Self {
        let root = match resource.group {
            "" => "/api/v1".to_owned(),
            group => format!("/apis/{group}/v1"),
        };
        let plural = resource.plural;
        let path = match &*selection.namespace {
            "" => format!("{root}/{plural}"),
            namespace => format!("{root}/namespaces/{namespace}/{plural}"),
        };
        Self {
            resource,
            path,
            selection,
        }
    }

    /// All `pods` of a kubelet's node.
    pub fn of_kubelet(pods: Resource) -> Self {
        Self {
            resource: pods,
            path: "/pods".to_owned(),
            selection: Selection::default(),
        }
    }

    fn is_of_kubelet(&self) -> bool {
        self.path == "/pods"
    }

    /// The kind, as the API names it.
    pub fn plural(&self) -> &'static str {
        self.resource.plural
    }

    pub fn list(&self, next: &str) -> Result<HttpRequest, ApiError> {
        self.page(PAGE, next)
    }

    /// Requests one object, which suffices to check the permission.
    pub fn first(&self) -> Result<HttpRequest, ApiError> {
        self.page(1, "")
    }

    fn page(&self, size: u32, next: &str) -> Result<HttpRequest, ApiError> {
        let parameters = ListParams {
            label_selector: joined(&self.selection.labels),
            field_selector: joined(&self.selection.fields),
            limit: Some(size),
            continue_token: (!next.is_empty()).then(|| next.to_owned()),
            ..ListParams::default()
        };
        let request = Request::new(&*self.path);
        match self.resource.is_metadata_enough {
            true => request.list_metadata(&parameters),
            false => request.list(&parameters),
        }
        .map_err(ApiError::from)
    }

    pub fn watch(&self, version: &str) -> Result<HttpRequest, ApiError> {
        let parameters = WatchParams {
            label_selector: joined(&self.selection.labels),
            field_selector: joined(&self.selection.fields),
            timeout: Some(WATCH_SECONDS),
            bookmarks: true,
            ..WatchParams::default()
        };
        let request = Request::new(&*self.path);
        match self.resource.is_metadata_enough {
            true => request.watch_metadata(&parameters, version),
            false => request.watch(&parameters, version),
        }
        .map_err(ApiError::from)
    }

    /// The RBAC rule that grants the permission.
    pub fn rule(&self) -> String {
        if self.is_of_kubelet() {
            return "add to the service account's ClusterRole: {apiGroups: [\"\"], resources: [nodes/proxy], verbs: [get]}".to_owned();
        }
        let role = match (&*self.selection.namespace, self.resource.is_namespaced) {
            ("", _) | (_, false) => "ClusterRole".to_owned(),
            (namespace, true) => format!("Role in namespace {namespace}"),
        };
        format!(
            "add to the service account's {role}: {{apiGroups: [{:?}], resources: [{}], verbs: [list, watch]}}",
            self.resource.group, self.resource.plural
        )
    }
}

fn joined(selectors: &[String]) -> Option<String> {
    (!selectors.is_empty()).then(|| selectors.join(","))
}

// === impl ApiError ===

impl From<kube::Error> for ApiError {
    fn from(error: kube::Error) -> Self {
        let kube::Error::Api(status) = &error else {
            return Self::Transport(error);
        };
        Self::from_status(status)
    }
}

impl ApiError {
    pub fn from_status(status: &kube::core::Status) -> Self {
        let message = match &*status.message {
            "" => format!("the server answered {}", status.code),
            message => message.to_owned(),
        };
        match status.code {
            401 => Self::Unauthorized(message),
            403 => Self::Forbidden(message),
            410 => Self::Expired,
            429 | 503 => {
                let details = status.details.as_ref();
                let seconds = details.map_or(0, |details| details.retry_after_seconds);
                let wait = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
                Self::Busy(message, wait)
            }
            code => Self::Status { message, code },
        }
    }
}
