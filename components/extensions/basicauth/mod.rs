//! Requires a user and password from clients of a receiver, or sends them with the requests of an
//! exporter.

mod client;
mod config;
mod htpasswd;
mod server;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use profcol_component::{
    BuildContext, BuildError, Check, Extension, Factory, Handles, Stability, StartError,
};
use profcol_net::auth::{ClientAuth, ServerAuth};

use self::client::Client;
pub use self::config::BasicAuthConfig;
use self::server::Server;

pub struct BasicAuth(Side);

enum Side {
    Server(Arc<Server>),
    Client(Arc<Client>),
}

impl Factory for BasicAuth {
    const NAME: &'static str = "basicauth";
    const STABILITY: Stability = Stability::Beta;
    type Config = BasicAuthConfig;
    type Component = dyn Extension;

    fn build(config: &BasicAuthConfig, _: &BuildContext) -> Result<Box<dyn Extension>, BuildError> {
        Ok(Box::new(BasicAuth::new(config)?))
    }
}

impl BasicAuth {
    fn new(config: &BasicAuthConfig) -> Result<Self, BuildError> {
        match (&*config.htpasswd, &*config.client_auth) {
            (Some(settings), _) => Ok(Self(Side::Server(Arc::new(Server::new(settings)?)))),
            (None, Some(settings)) => Ok(Self(Side::Client(Arc::new(Client::new(settings))))),
            (None, None) => Err(BuildError::new("no credential source provided")),
        }
    }
}

#[async_trait]
impl Extension for BasicAuth {
    fn offer(self: Arc<Self>, handles: &mut Handles) {
        match &self.0 {
            Side::Server(server) => handles.add::<Arc<dyn ServerAuth>>(Arc::clone(server) as _),
            Side::Client(client) => handles.add::<Arc<dyn ClientAuth>>(Arc::clone(client) as _),
        }
    }

    async fn start(&self) -> Result<(), StartError> {
        match &self.0 {
            Side::Server(server) => server.start(),
            Side::Client(client) => client.start(),
        }
        .map_err(StartError::new)
    }

    async fn check(&self) -> Vec<Check> {
        match &self.0 {
            Side::Server(server) => server.check(),
            Side::Client(client) => client.check(),
        }
    }
}
