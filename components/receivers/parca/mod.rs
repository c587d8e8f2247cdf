//! Receives profiles and debuginfo from Parca Agents.

mod config;
mod debuginfo;
mod service;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use profcol_admission::Admission;
use profcol_component::{
    BuildContext, BuildError, Capabilities, Check, Factory, Output, Receiver, RunError, Stability,
    StartError, Stop, files,
};
use profcol_net::auth::{ClientAuth, ServerAuth};
use profcol_net::{ClientError, GrpcClient, GrpcServer, ListeningSockets};

pub use self::config::ParcaConfig;
use self::debuginfo::Debuginfo;
use self::service::Service;
use crate::shared::{
    admission, authenticator, deadline, grpc_listening, not_started, warn_if_exposed,
};

pub struct Parca {
    config: ParcaConfig,
    /// The path of `config` in the configuration.
    path: String,
    auth: Option<Arc<dyn ServerAuth>>,
    admission: Admission,
    sockets: ListeningSockets,
    server: Option<GrpcServer>,
    upstream_auth: Option<Arc<dyn ClientAuth>>,
    upstream: Option<GrpcClient>,
}

/// The user agent for requests to the upstream.
const USER_AGENT: &str = concat!("profcol/", env!("CARGO_PKG_VERSION"));

impl Factory for Parca {
    const NAME: &'static str = "parca";
    const STABILITY: Stability = Stability::Alpha;
    /// Two instances would listen on one address.
    const IS_EXCLUSIVE: bool = true;
    type Config = ParcaConfig;
    type Component = dyn Receiver;

    fn capabilities(config: &ParcaConfig) -> Capabilities {
        let upstream = config.debuginfo_upstream.as_ref();
        let upstream = upstream.map_or(Capabilities::NONE, |upstream| {
            Capabilities::to_connect(&upstream.endpoint)
        });
        Capabilities::to_listen(&config.server.endpoint) | upstream
    }

    fn writes(config: &ParcaConfig) -> Vec<PathBuf> {
        files::socket_directory(&config.server.endpoint)
            .into_iter()
            .collect()
    }

    fn build(
        config: &ParcaConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Receiver>, BuildError> {
        let upstream = config.debuginfo_upstream.as_ref();
        let upstream_auth = match upstream.and_then(|upstream| upstream.auth.as_ref()) {
            Some(auth) => {
                let auth = context.extension::<Arc<dyn ClientAuth>>(&auth.authenticator)?;
                Some(Arc::clone(&*auth))
            }
            None => None,
        };
        Ok(Box::new(Parca {
            config: config.clone(),
            path: format!("receivers::{}", context.id),
            auth: authenticator(config.server.auth.as_ref(), context)?,
            admission: admission(context, "grpc"),
            sockets: context.shared.get(),
            server: None,
            upstream_auth,
            upstream: None,
        }))
    }
}

#[async_trait]
impl Receiver for Parca {
    async fn start(&mut self) -> Result<(), StartError> {
        let server = GrpcServer::bind(&self.config.server, self.auth.clone(), &self.sockets)
            .map_err(|error| not_started(&self.path, error))?
            .with_admission(self.admission.clone());
        if let Some(settings) = &*self.config.debuginfo_upstream {
            let upstream = GrpcClient::new(settings, self.upstream_auth.clone(), USER_AGENT);
            self.upstream = Some(upstream.map_err(|error| self.upstream_not_started(error))?);
        }
        tracing::info!(endpoint = %server.local_addr(), "Starting Parca server.");
        let listening = grpc_listening("listen", &self.config.server);
        warn_if_exposed(&listening, server.local_addr());
        self.server = Some(server);
        Ok(())
    }

    async fn check(&mut self) -> Vec<Check> {
        grpc_listening("listen", &self.config.server).check().await
    }

    async fn run(self: Box<Self>, output: Output, stop: Stop) -> Result<(), RunError> {
        let Some(server) = self.server else {
            return Err(RunError::new("the receiver was not started"));
        };
        let service = Service::new(
            output.for_transport("grpc"),
            self.config.write_timeout.into(),
            self.config.server.max_recv_msg_size_mib,
            Debuginfo::new(self.upstream, self.config.debuginfo_idle_timeout.into()),
            self.admission,
        );
        server.serve(service, deadline(&stop)).await;
        Ok(())
    }
}

impl Parca {
    fn upstream_not_started(&self, error: ClientError) -> StartError {
        StartError::new(error.at(format!("{}::debuginfo_upstream", self.path)))
    }
}
