//! Reports over HTTP whether all components are healthy, for Kubernetes probes and load balancers.

mod config;
mod health;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use parking_lot::Mutex;
use profcol_component::{
    BuildContext, BuildError, Capabilities, Check, Extension, Factory, Listening, RunError,
    Stability, StartError, Stop, files,
};
use profcol_net::grpc::Status;
use profcol_net::{HttpRequest, HttpServer, HttpService, ListeningSockets, Transport, response};

pub use self::config::HealthCheckConfig;
use self::health::Health;

/// How long requests in flight may take after a stop.
const GRACE: Duration = Duration::from_secs(1);

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

pub struct HealthCheck {
    config: HealthCheckConfig,
    health: Arc<Health>,
    sockets: ListeningSockets,
    /// Set between start and run.
    server: Mutex<Option<HttpServer>>,
}

impl Factory for HealthCheck {
    const NAME: &'static str = "health_check";
    const STABILITY: Stability = Stability::Beta;
    /// Two instances would listen on one address.
    const IS_EXCLUSIVE: bool = true;
    type Config = HealthCheckConfig;
    type Component = dyn Extension;

    fn capabilities(config: &HealthCheckConfig) -> Capabilities {
        Capabilities::to_listen(&config.endpoint)
    }

    fn writes(config: &HealthCheckConfig) -> Vec<PathBuf> {
        files::socket_directory(&config.endpoint)
            .into_iter()
            .collect()
    }

    fn build(
        config: &HealthCheckConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Extension>, BuildError> {
        Ok(Box::new(HealthCheck::new(config, context)))
    }
}

impl HealthCheck {
    fn new(config: &HealthCheckConfig, context: &BuildContext) -> Self {
        Self {
            config: config.clone(),
            health: Arc::new(Health::new(context.shared.get())),
            sockets: context.shared.get(),
            server: Mutex::new(None),
        }
    }
}

#[async_trait]
impl Extension for HealthCheck {
    async fn start(&self) -> Result<(), StartError> {
        let server = HttpServer::bind(&self.config.server(), None, &self.sockets)
            .map_err(StartError::new)?;
        tracing::info!(endpoint = %server.local_addr(), "Starting health check server.");
        *self.server.lock() = Some(server);
        Ok(())
    }

    async fn check(&self) -> Vec<Check> {
        let HealthCheckConfig {
            endpoint,
            transport,
            tls,
            ..
        } = &self.config;
        let is_unix = *transport == Transport::Unix;
        let listening = Listening {
            // Probes come from other hosts, and learn little.
            is_sensitive: false,
            ..Listening::new("listen", endpoint, is_unix, tls.is_some())
        };
        listening.check().await
    }

    async fn run(self: Arc<Self>, stop: Stop) -> Result<(), RunError> {
        let Some(server) = self.server.lock().take() else {
            return Ok(());
        };
        let answers = Answers {
            config: self.config.clone(),
            health: Arc::clone(&self.health),
        };
        tokio::select! {
            () = server.serve(answers, stop.deadline(GRACE)) => {}
            () = self.health.follow() => {}
        }
        Ok(())
    }
}

struct Answers {
    config: HealthCheckConfig,
    health: Arc<Health>,
}

impl Answers {
    fn has_name(&self, path: &str) -> bool {
        let own = self.config.path.as_str();
        path == own || (own.ends_with('/') && path.starts_with(own))
    }
}

impl HttpService for Answers {
    fn admit(&self, head: &Parts) -> Result<(), Response<Bytes>> {
        if self.has_name(head.uri.path()) {
            return Ok(());
        }
        Err(response(
            StatusCode::NOT_FOUND,
            TEXT,
            "404 page not found\n",
        ))
    }

    async fn call(&self, _: HttpRequest) -> Response<Bytes> {
        let report = self.health.report();
        let status = if report.healthy {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        if let Some(texts) = &*self.config.response_body {
            let text = if report.healthy {
                &texts.healthy
            } else {
                &texts.unhealthy
            };
            return response(status, TEXT, text.clone());
        }
        let json = serde_json::to_vec(&report).expect("strings serialize to JSON");
        response(status, JSON, json)
    }

    fn refusal(&self, _: &HeaderMap, http: StatusCode, status: &Status) -> Response<Bytes> {
        response(http, TEXT, format!("{}\n", status.message))
    }
}
