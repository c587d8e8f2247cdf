//! Requests to the API server: access, queries and error responses.

use std::time::Duration;

use http::uri::InvalidUri;
use kube::client::ClientBuilder;
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::core::params::{ListParams, WatchParams};
use kube::core::request::Request;
use kube::{Client, Config};
use parking_lot::Mutex;

use super::config::{AuthType, K8sAttributesConfig, KubeletConfig, Origin};
use super::records::Kind;
use super::selection::Selection;

/// Objects per page.
const PAGE: u32 = 500;
/// Timeout of a watch, enforced by the server; then it is restarted.
const WATCH_SECONDS: u32 = 290;
/// A watch that is silent for this long, without a bookmark or its end, has lost its connection.
pub(super) const WATCH_TIMEOUT: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 10);

/// Creates clients; each with the current credentials.
pub(super) struct Server {
    access: Access,
    client: Mutex<Option<Client>>,
}

struct Access {
    auth_type: AuthType,
    kube_config_path: String,
    context: String,
    /// Used instead of the API server.
    kubelet: Option<KubeletConfig>,
}

/// Selects objects of one kind.
#[derive(Clone, Debug)]
pub(super) struct Query {
    pub kind: Kind,
    path: String,
    selection: Selection,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
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
    #[error("{}", chain(.0))]
    Transport(#[source] kube::Error),
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    #[error("found no service account ({0}): outside of a pod use auth_type: kubeConfig")]
    NoServiceAccount(#[from] InClusterError),
    #[error("failed to use the kubeconfig file: {}", chain(.0))]
    Kubeconfig(#[from] KubeconfigError),
    #[error(
        "unable to load k8s config, KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be defined"
    )]
    NoServiceVariables,
    #[error("invalid URL {url:?}: {error}")]
    Url {
        url: String,
        #[source]
        error: InvalidUri,
    },
    #[error("{}", chain(.0))]
    Configuration(#[source] kube::Error),
}

type HttpRequest = http::Request<Vec<u8>>;

// === impl Server ===

impl Server {
    pub fn new(config: &K8sAttributesConfig) -> Self {
        Self {
            access: Access {
                auth_type: config.auth_type,
                kube_config_path: config.kube_config_path.clone(),
                context: config.context.clone(),
                kubelet: (config.source == Origin::Kubelet).then(|| config.kubelet.clone()),
            },
            client: Mutex::new(None),
        }
    }

    /// Reads the configuration; connects with the first request.
    pub async fn client(&self) -> Result<Client, ClientError> {
        if let Some(client) = &*self.client.lock() {
            return Ok(client.clone());
        }
        let client = self.access.client().await?;
        *self.client.lock() = Some(client.clone());
        Ok(client)
    }

    /// Makes the next client read its credentials again.
    pub fn forget_client(&self) {
        *self.client.lock() = None;
    }
}

impl Access {
    async fn client(&self) -> Result<Client, ClientError> {
        let mut config = match self.auth_type {
            AuthType::ServiceAccount => Config::incluster()?,
            AuthType::None => match &self.kubelet {
                Some(kubelet) => Config::new(url(&kubelet.endpoint)?),
                None => anonymous()?,
            },
            AuthType::KubeConfig | AuthType::Tls => self.by_file().await?,
        };
        if let Some(kubelet) = &self.kubelet {
            config.cluster_url = url(&kubelet.endpoint)?;
            config.accept_invalid_certs |= kubelet.insecure_skip_verify;
        }
        // The caller retries and logs.
        config.default_retry = false;
        let builder = ClientBuilder::try_from(config).map_err(ClientError::Configuration)?;
        Ok(builder.build())
    }

    async fn by_file(&self) -> Result<Config, ClientError> {
        let options = KubeConfigOptions {
            context: (!self.context.is_empty()).then(|| self.context.clone()),
            ..KubeConfigOptions::default()
        };
        let config = match &*self.kube_config_path {
            "" => Config::from_kubeconfig(&options).await,
            path => match Kubeconfig::read_from(path) {
                Ok(file) => Config::from_custom_kubeconfig(file, &options).await,
                Err(error) => Err(error),
            },
        };
        Ok(config?)
    }
}

/// The server of the cluster that profcol runs in.
fn anonymous() -> Result<Config, ClientError> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let host = variable("KUBERNETES_SERVICE_HOST");
    let port = variable("KUBERNETES_SERVICE_PORT");
    if host.is_empty() || port.is_empty() {
        return Err(ClientError::NoServiceVariables);
    }
    let host = match host.contains(':') {
        true => format!("[{host}]"),
        false => host,
    };
    let mut config = Config::new(url(&format!("https://{host}:{port}"))?);
    config.accept_invalid_certs = true;
    Ok(config)
}

fn url(text: &str) -> Result<http::Uri, ClientError> {
    text.parse().map_err(|error| ClientError::Url {
        url: text.to_owned(),
        error,
    })
}

// === impl Query ===

impl Query {
    pub fn new(kind: Kind, selection: Selection) -> Self {
        let root = match kind.group() {
            "" => "/api/v1".to_owned(),
            group => format!("/apis/{group}/v1"),
        };
        let plural = kind.plural();
        let path = match &*selection.namespace {
            "" => format!("{root}/{plural}"),
            namespace => format!("{root}/namespaces/{namespace}/{plural}"),
        };
        Self {
            kind,
            path,
            selection,
        }
    }

    /// All pods of a kubelet's node.
    pub fn of_kubelet() -> Self {
        Self {
            kind: Kind::Pod,
            path: "/pods".to_owned(),
            selection: Selection::default(),
        }
    }

    fn is_of_kubelet(&self) -> bool {
        self.path == "/pods"
    }

    /// For all kinds but pods the metadata is sufficient.
    fn is_metadata_enough(&self) -> bool {
        self.kind != Kind::Pod
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
            label_selector: self.selection.labels(),
            field_selector: self.selection.fields(),
            limit: Some(size),
            continue_token: (!next.is_empty()).then(|| next.to_owned()),
            ..ListParams::default()
        };
        let request = Request::new(&*self.path);
        match self.is_metadata_enough() {
            true => request.list_metadata(&parameters),
            false => request.list(&parameters),
        }
        .map_err(ApiError::from)
    }

    pub fn watch(&self, version: &str) -> Result<HttpRequest, ApiError> {
        let parameters = WatchParams {
            label_selector: self.selection.labels(),
            field_selector: self.selection.fields(),
            timeout: Some(WATCH_SECONDS),
            bookmarks: true,
            ..WatchParams::default()
        };
        let request = Request::new(&*self.path);
        match self.is_metadata_enough() {
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
        let role = match (&*self.selection.namespace, self.kind.is_namespaced()) {
            ("", _) | (_, false) => "ClusterRole".to_owned(),
            (namespace, true) => format!("Role in namespace {namespace}"),
        };
        format!(
            "add to the service account's {role}: {{apiGroups: [{:?}], resources: [{}], verbs: [list, watch]}}",
            self.kind.group(),
            self.kind.plural()
        )
    }
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

/// The error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
