//! Receives profiles over OTLP, by gRPC and HTTP.
//!
//! A request is one buffer from the socket to the exporters: it is checked in place, and if no component changes
//! it, its original bytes are sent.

mod config;
mod export;
mod grpc;
mod http;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use profcol_admission::Admission;
use profcol_component::{
    BuildContext, BuildError, Capabilities, Check, Factory, Listening, Output, Receiver, RunError,
    Stability, StartError, Stop, files,
};
use profcol_net::auth::ServerAuth;
use profcol_net::{
    BoundAddr, GrpcServer, HttpServer, HttpServerSettings, ListeningSockets, ServerError, Transport,
};

use self::config::AnswerWhen;
pub use self::config::OtlpConfig;
use self::export::{Export, PipelineSink};
use crate::shared::{
    Deduplicator, admission, authenticator, deadline, grpc_listening, not_started, warn_if_exposed,
};

pub struct Otlp {
    config: OtlpConfig,
    /// The path of `config` in the configuration.
    path: String,
    grpc_auth: Option<Arc<dyn ServerAuth>>,
    http_auth: Option<Arc<dyn ServerAuth>>,
    grpc_admission: Admission,
    http_admission: Admission,
    deduplicator: Option<Arc<Deduplicator>>,
    sockets: ListeningSockets,
    grpc: Option<GrpcServer>,
    http: Option<HttpServer>,
}

impl Factory for Otlp {
    const NAME: &'static str = "otlp";
    const STABILITY: Stability = Stability::Beta;
    /// Two instances would listen on one address.
    const IS_EXCLUSIVE: bool = true;
    type Config = OtlpConfig;
    type Component = dyn Receiver;

    fn capabilities(config: &OtlpConfig) -> Capabilities {
        let endpoints = config.protocols.endpoints();
        endpoints.fold(Capabilities::NONE, |needed, endpoint| {
            needed | Capabilities::to_listen(endpoint)
        })
    }

    fn writes(config: &OtlpConfig) -> Vec<PathBuf> {
        let endpoints = config.protocols.endpoints();
        endpoints.filter_map(files::socket_directory).collect()
    }

    fn build(config: &OtlpConfig, context: &BuildContext) -> Result<Box<dyn Receiver>, BuildError> {
        Ok(Box::new(Otlp::new(config, context)?))
    }
}

impl Otlp {
    fn not_started(&self, protocol: &str, error: ServerError) -> StartError {
        not_started(&format!("{}::protocols::{protocol}", self.path), error)
    }

    fn new(config: &OtlpConfig, context: &BuildContext) -> Result<Self, BuildError> {
        let protocols = &config.protocols;
        let grpc_auth = protocols.grpc.as_ref().and_then(|grpc| grpc.auth.as_ref());
        let http_auth = protocols.http.as_ref().and_then(|http| http.auth.as_ref());
        let deduplicate = config.deduplicate.as_ref();
        Ok(Otlp {
            config: config.clone(),
            path: format!("receivers::{}", context.id),
            grpc_auth: authenticator(grpc_auth, context)?,
            http_auth: authenticator(http_auth, context)?,
            grpc_admission: admission(context, "grpc"),
            http_admission: admission(context, "http"),
            deduplicator: deduplicate.map(|it| Arc::new(Deduplicator::new(it, context))),
            sockets: context.shared.get(),
            grpc: None,
            http: None,
        })
    }
}

#[async_trait]
impl Receiver for Otlp {
    async fn start(&mut self) -> Result<(), StartError> {
        let protocols = &self.config.protocols;
        if let Some(settings) = &*protocols.grpc {
            let server = GrpcServer::bind(settings, self.grpc_auth.clone(), &self.sockets)
                .map_err(|error| self.not_started("grpc", error))?
                .with_admission(self.grpc_admission.clone());
            started("grpc", server.local_addr(), &grpc_listening(GRPC, settings));
            self.grpc = Some(server);
        }
        if let Some(settings) = &*protocols.http {
            let server = HttpServer::bind(settings, self.http_auth.clone(), &self.sockets)
                .map_err(|error| self.not_started("http", error))?
                .with_admission(self.http_admission.clone());
            started("http", server.local_addr(), &http_listening(settings));
            self.http = Some(server);
        }
        Ok(())
    }

    async fn check(&mut self) -> Vec<Check> {
        let protocols = &self.config.protocols;
        let grpc = protocols.grpc.as_ref();
        let grpc = grpc.map(|it| grpc_listening(GRPC, it));
        let http = protocols.http.as_ref().map(http_listening);
        let mut checks = Vec::new();
        for listening in grpc.into_iter().chain(http) {
            checks.extend(listening.check().await);
        }
        checks
    }

    async fn run(self: Box<Self>, output: Output, stop: Stop) -> Result<(), RunError> {
        let export = |transport, admission| {
            let sink = PipelineSink {
                output: output.for_transport(transport),
                until_delivered: self.config.answer_when == AnswerWhen::Delivered,
            };
            Export {
                sink,
                admission,
                validation: self.config.validation.into(),
                deduplicator: self.deduplicator.clone(),
            }
        };
        let grpc = grpc::Service(export("grpc", self.grpc_admission));
        let http = http::Service(export("http", self.http_admission));
        let (grpc_server, http_server) = (self.grpc, self.http);
        let serve_grpc = async {
            if let Some(server) = grpc_server {
                server.serve(grpc, deadline(&stop)).await;
            }
        };
        let serve_http = async {
            if let Some(server) = http_server {
                server.serve(http, deadline(&stop)).await;
            }
        };
        tokio::join!(serve_grpc, serve_http);
        if let Some(deduplicator) = self.deduplicator {
            deduplicator.finish(deadline(&stop).await).await;
        }
        Ok(())
    }
}

fn started(protocol: &str, address: &BoundAddr, listening: &Listening) {
    tracing::info!(protocol, endpoint = %address, "Starting OTLP server.");
    warn_if_exposed(listening, address);
}

/// The name of the check of the gRPC server.
const GRPC: &str = "listen_grpc";

fn http_listening(settings: &HttpServerSettings) -> Listening {
    let is_unix = settings.transport == Transport::Unix;
    let is_protected = settings.tls.is_some() || settings.auth.is_some();
    Listening::new("listen_http", &settings.endpoint, is_unix, is_protected)
}
