//! Access to the API server: its address and the credentials.

use http::uri::InvalidUri;
use kube::client::ClientBuilder;
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use parking_lot::Mutex;
use profcol_printable::with_causes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How to authenticate.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
pub enum AuthType {
    /// The service account of the pod that profcol runs in.
    #[default]
    #[serde(rename = "serviceAccount")]
    ServiceAccount,
    /// A file in the format of `kubectl`.
    #[serde(rename = "kubeConfig")]
    KubeConfig,
    /// No credentials, and no verification of the server's certificate.
    #[serde(rename = "none")]
    None,
    /// A client certificate by itself; here it goes into a kubeconfig file.
    #[serde(rename = "tls")]
    Tls,
}

/// Where the server is, and who asks.
#[derive(Clone, Debug, Default)]
pub struct Access {
    pub auth_type: AuthType,
    /// The file for `kubeConfig`; empty means the default one.
    pub kube_config_path: String,
    /// The context in that file; empty means its current one.
    pub context: String,
    /// Used instead of the API server.
    pub kubelet: Option<Kubelet>,
}

/// The kubelet of a node.
#[derive(Clone, Debug)]
pub struct Kubelet {
    pub endpoint: String,
    pub insecure_skip_verify: bool,
}

/// Creates clients; each with the current credentials.
pub struct Server {
    access: Access,
    client: Mutex<Option<Client>>,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("found no service account ({0}): outside of a pod use auth_type: kubeConfig")]
    NoServiceAccount(#[from] InClusterError),
    #[error("failed to use the kubeconfig file: {}", with_causes(.0))]
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
    #[error("{}", with_causes(.0))]
    Configuration(#[source] kube::Error),
}

// === impl Server ===

impl Server {
    pub fn new(access: Access) -> Self {
        Self {
            access,
            client: Mutex::new(None),
        }
    }

    /// The namespace of the pod that profcol runs in, or of the kubeconfig's context.
    pub async fn namespace(&self) -> Result<String, ClientError> {
        Ok(self.client().await?.default_namespace().to_owned())
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

// === impl Access ===

impl Access {
    /// What is wrong with the options, by key.
    pub fn problems(&self) -> Vec<(&'static str, &'static str)> {
        let mut problems = Vec::new();
        if self.auth_type == AuthType::Tls {
            problems.push((
                "auth_type",
                "put the client certificate into a kubeconfig file and use kubeConfig",
            ));
        }
        if self.auth_type != AuthType::KubeConfig {
            for (key, value) in [
                ("context", &self.context),
                ("kube_config_path", &self.kube_config_path),
            ] {
                if !value.is_empty() {
                    problems.push((key, "requires auth_type: kubeConfig"));
                }
            }
        }
        problems
    }

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
