//! Takes what Parca Agents send.

mod config;
mod service;

use std::sync::Arc;

use async_trait::async_trait;
use profcol_component::{
    BuildContext, BuildError, Factory, Output, Receiver, RunError, Stability, StartError, Stop,
};
use profcol_net::GrpcServer;
use profcol_net::auth::ServerAuth;

pub use self::config::ParcaConfig;
use self::service::Service;
use crate::shared::{authenticator, deadline, not_started};

pub struct Parca {
    config: ParcaConfig,
    /// Where `config` stands in the configuration.
    path: String,
    auth: Option<Arc<dyn ServerAuth>>,
    server: Option<GrpcServer>,
}

impl Factory for Parca {
    const NAME: &'static str = "parca";
    const STABILITY: Stability = Stability::Alpha;
    type Config = ParcaConfig;
    type Component = dyn Receiver;

    fn build(
        config: &ParcaConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Receiver>, BuildError> {
        Ok(Box::new(Parca {
            config: config.clone(),
            path: format!("receivers::{}", context.id),
            auth: authenticator(config.server.auth.as_ref(), context)?,
            server: None,
        }))
    }
}

#[async_trait]
impl Receiver for Parca {
    async fn start(&mut self) -> Result<(), StartError> {
        let server = GrpcServer::bind(&self.config.server, self.auth.clone())
            .map_err(|error| not_started(&self.path, error))?;
        tracing::info!(endpoint = %server.local_addr(), "Starting Parca server.");
        self.server = Some(server);
        Ok(())
    }

    async fn run(self: Box<Self>, output: Output, stop: Stop) -> Result<(), RunError> {
        let Some(server) = self.server else {
            return Err(RunError("the receiver was not started".into()));
        };
        let service = Service::new(
            output.for_transport("grpc"),
            self.config.write_timeout.into(),
            self.config.server.max_recv_msg_size_mib,
        );
        server.serve(service, deadline(&stop)).await;
        Ok(())
    }
}
