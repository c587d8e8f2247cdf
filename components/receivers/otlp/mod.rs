//! Takes profiles over OTLP, by gRPC and HTTP.
//!
//! A request is one buffer from the socket to the exporters: it is checked in place, and where no
//! component changes it, it leaves in the bytes in which it came.

mod config;
mod export;
mod grpc;
mod http;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use profcol_component::{
    BuildContext, BuildError, Factory, Output, Receiver, RunError, Stability, StartError, Stop,
};
use profcol_net::auth::ServerAuth;
use profcol_net::{AuthSettings, BoundAddr, GrpcServer, HttpServer};
use tokio::time::Instant;

use self::config::AnswerWhen;
pub use self::config::OtlpConfig;
use self::export::Export;

/// How long running requests may take after a stop was asked for.
const GRACE: Duration = Duration::from_secs(5);

pub struct Otlp {
    config: OtlpConfig,
    grpc_auth: Option<Arc<dyn ServerAuth>>,
    http_auth: Option<Arc<dyn ServerAuth>>,
    grpc: Option<GrpcServer>,
    http: Option<HttpServer>,
}

impl Factory for Otlp {
    const NAME: &'static str = "otlp";
    const STABILITY: Stability = Stability::Beta;
    type Config = OtlpConfig;
    type Component = dyn Receiver;

    fn build(config: &OtlpConfig, context: &BuildContext) -> Result<Box<dyn Receiver>, BuildError> {
        Ok(Box::new(Otlp::new(config, context)?))
    }
}

impl Otlp {
    fn new(config: &OtlpConfig, context: &BuildContext) -> Result<Self, BuildError> {
        let protocols = &config.protocols;
        let grpc_auth = protocols.grpc.as_ref().and_then(|grpc| grpc.auth.as_ref());
        let http_auth = protocols.http.as_ref().and_then(|http| http.auth.as_ref());
        Ok(Otlp {
            config: config.clone(),
            grpc_auth: authenticator(grpc_auth, context)?,
            http_auth: authenticator(http_auth, context)?,
            grpc: None,
            http: None,
        })
    }
}

fn authenticator(
    settings: Option<&AuthSettings>,
    context: &BuildContext,
) -> Result<Option<Arc<dyn ServerAuth>>, BuildError> {
    let Some(settings) = settings else {
        return Ok(None);
    };
    let auth = context.extension::<Arc<dyn ServerAuth>>(&settings.authenticator)?;
    Ok(Some(Arc::clone(&auth)))
}

#[async_trait]
impl Receiver for Otlp {
    async fn start(&mut self) -> Result<(), StartError> {
        let protocols = &self.config.protocols;
        if let Some(settings) = &*protocols.grpc {
            let server = GrpcServer::bind(settings, self.grpc_auth.clone())
                .map_err(|error| StartError(format!("protocols::grpc: {error}")))?;
            listening("grpc", server.local_addr());
            self.grpc = Some(server);
        }
        if let Some(settings) = &*protocols.http {
            let server = HttpServer::bind(settings, self.http_auth.clone())
                .map_err(|error| StartError(format!("protocols::http: {error}")))?;
            listening("http", server.local_addr());
            self.http = Some(server);
        }
        Ok(())
    }

    async fn run(self: Box<Self>, output: Output, stop: Stop) -> Result<(), RunError> {
        let export = |transport| {
            let validation = self.config.validation.into();
            let until_delivered = self.config.answer_when == AnswerWhen::Delivered;
            Export::new(output.for_transport(transport), validation, until_delivered)
        };
        let (grpc, http) = (grpc::Service(export("grpc")), http::Service(export("http")));
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
        Ok(())
    }
}

fn listening(protocol: &str, address: &BoundAddr) {
    tracing::info!(protocol, endpoint = %address, "Starting OTLP server.");
}

/// Resolves after a stop was asked for, to the moment by which running requests must be done.
async fn deadline(stop: &Stop) -> Instant {
    stop.cancelled().await;
    Instant::now() + GRACE
}
