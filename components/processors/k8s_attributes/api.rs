//! Asking the API server: how it is reached, what is asked, and what its refusals mean.

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::params::{ListParams, WatchParams};
use kube::core::request::Request;
use kube::{Client, Config};

use super::config::{AuthType, K8sAttributesConfig, KubeletConfig, Origin};
use super::records::Kind;
use super::selection::Selection;
use crate::shared::locks::lock;

/// How many objects are asked for at once.
const PAGE: u32 = 500;
/// The server ends a watch after that, and it is begun anew.
const WATCH_SECONDS: u32 = 290;
/// A watch that is silent for so long has lost its connection: not even a bookmark came, nor its end.
pub(super) const WATCH_TIMEOUT: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 10);

/// Makes clients: credentials may have been changed since the last one was made.
pub(super) struct Server {
    access: Access,
    client: Mutex<Option<Client>>,
}

struct Access {
    auth_type: AuthType,
    kube_config_path: String,
    context: String,
    /// In the place of the API server.
    kubelet: Option<KubeletConfig>,
}

/// Objects of one kind.
#[derive(Clone, Debug)]
pub(super) struct Query {
    pub kind: Kind,
    path: String,
    selection: Selection,
}

/// Why something was not answered.
#[derive(Debug)]
pub(super) enum ApiError {
    /// A right is missing.
    Forbidden(String),
    /// The server does not know who asks.
    Unauthorized(String),
    /// The server is too busy, and may say for how long.
    Busy(String, Option<Duration>),
    /// What was known is too old to go on from.
    Expired,
    Other(String),
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

    /// Reads files and variables; connects when something is asked.
    pub async fn client(&self) -> Result<Client, String> {
        if let Some(client) = &*self.lock() {
            return Ok(client.clone());
        }
        let client = self.access.client().await?;
        *self.lock() = Some(client.clone());
        Ok(client)
    }

    /// The next client is made with the credentials of then.
    pub fn forget_client(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Client>> {
        lock(&self.client)
    }
}

impl Access {
    async fn client(&self) -> Result<Client, String> {
        let mut config = match self.auth_type {
            AuthType::ServiceAccount => Config::incluster().map_err(|error| {
                format!(
                    "found no service account ({error}): outside of a pod use auth_type: kubeConfig"
                )
            })?,
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
        // Who asks waits by itself, and is told why.
        config.default_retry = false;
        let builder = ClientBuilder::try_from(config).map_err(|error| error.to_string())?;
        Ok(builder.build())
    }

    async fn by_file(&self) -> Result<Config, String> {
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
        config.map_err(|error| format!("cannot use the kubeconfig file: {}", chain(&error)))
    }
}

/// The server of the cluster in which this runs.
fn anonymous() -> Result<Config, String> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let host = variable("KUBERNETES_SERVICE_HOST");
    let port = variable("KUBERNETES_SERVICE_PORT");
    if host.is_empty() || port.is_empty() {
        return Err(
            "unable to load k8s config, KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be defined".to_owned(),
        );
    }
    let host = match host.contains(':') {
        true => format!("[{host}]"),
        false => host,
    };
    let mut config = Config::new(url(&format!("https://{host}:{port}"))?);
    config.accept_invalid_certs = true;
    Ok(config)
}

fn url(text: &str) -> Result<http::Uri, String> {
    text.parse()
        .map_err(|error| format!("{text:?} is no URL: {error}"))
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

    /// Of all kinds but pods the metadata say all that is needed.
    fn is_metadata_enough(&self) -> bool {
        self.kind != Kind::Pod
    }

    pub fn list(&self, next: &str) -> Result<HttpRequest, ApiError> {
        self.page(PAGE, next)
    }

    /// One object, which is enough to know that they may be listed.
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
        .map_err(|error| ApiError::Other(error.to_string()))
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
        .map_err(|error| ApiError::Other(error.to_string()))
    }

    /// The rule of a role that grants what is needed.
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
            return Self::Other(chain(&error));
        };
        Self::from_status(status)
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forbidden(message)
            | Self::Unauthorized(message)
            | Self::Busy(message, _)
            | Self::Other(message) => f.write_str(message),
            Self::Expired => f.write_str("the server has forgotten where we were"),
        }
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
            code => Self::Other(format!("{message} ({code})")),
        }
    }
}

/// An error with what caused it.
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
