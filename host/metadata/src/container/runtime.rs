//! A common interface to all container runtimes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use profcol_net::GrpcStream;
use profcol_net::grpc::Code;
use profcol_profile::Attributes;
use tokio::time::timeout;

use super::api::{Change, ContainerName, Key, RuntimeError};
use super::containerd::{self, Containerd};
use super::cri::{self, Cri};
use super::description::LabelFilter;
use super::docker::{self, Docker};
use super::settings::SocketsConfig;

/// Timeout of a command's runtime queries.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Docker,
    Containerd,
    Cri,
}

/// The Unix socket of a runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    pub protocol: Protocol,
    pub path: String,
}

/// A client of a runtime.
pub enum Runtime {
    Docker(Docker),
    Containerd(Containerd),
    Cri(Cri),
}

/// The event stream of a runtime.
pub enum Events {
    Docker(docker::Events),
    Grpc(
        GrpcStream,
        fn(&[u8]) -> Result<Option<Change>, RuntimeError>,
    ),
}

impl Socket {
    /// The configured sockets, in order of precedence: Docker knows more about its containers than containerd, which
    /// runs them.
    pub fn all(config: &SocketsConfig) -> Vec<Socket> {
        if !config.enabled {
            return Vec::new();
        }
        let protocols = [
            (Protocol::Docker, &config.docker),
            (Protocol::Cri, &config.cri),
            (Protocol::Containerd, &config.containerd),
        ];
        let sockets = protocols.into_iter().flat_map(|(protocol, paths)| {
            let socket = move |path: &String| Socket {
                protocol,
                path: path.clone(),
            };
            paths.iter().map(socket)
        });
        sockets.collect()
    }

    /// Creates a client, which connects on its first request.
    pub fn open(&self) -> Result<Runtime, RuntimeError> {
        Ok(match self.protocol {
            Protocol::Docker => Runtime::Docker(Docker::new(&self.path)?),
            Protocol::Containerd => Runtime::Containerd(Containerd::new(&self.path)?),
            Protocol::Cri => Runtime::Cri(Cri::new(&self.path)?),
        })
    }

    /// Lists the containers once, for a command.
    pub async fn list(
        &self,
        labels: &LabelFilter,
    ) -> Result<HashMap<Key, Arc<Attributes>>, RuntimeError> {
        let answer = timeout(QUERY_TIMEOUT, async { self.open()?.list(labels).await });
        answer
            .await
            .unwrap_or(Err(RuntimeError::Timeout(QUERY_TIMEOUT)))
    }
}

impl Runtime {
    pub async fn events(&self) -> Result<Events, RuntimeError> {
        Ok(match self {
            Self::Docker(docker) => Events::Docker(docker.events().await?),
            Self::Containerd(it) => Events::Grpc(it.events().await?, containerd::change),
            Self::Cri(it) => Events::Grpc(it.events().await?, cri::change),
        })
    }

    pub async fn list(
        &self,
        labels: &LabelFilter,
    ) -> Result<HashMap<Key, Arc<Attributes>>, RuntimeError> {
        match self {
            Self::Docker(docker) => docker.list(labels).await,
            Self::Containerd(containerd) => containerd.list(labels).await,
            Self::Cri(cri) => cri.list(labels).await,
        }
    }

    /// `None` if the container no longer exists.
    pub async fn container(
        &self,
        name: &ContainerName,
        labels: &LabelFilter,
    ) -> Result<Option<Arc<Attributes>>, RuntimeError> {
        match self {
            Self::Docker(docker) => docker.container(&name.id, labels).await,
            Self::Containerd(containerd) => containerd.container(name, labels).await,
            Self::Cri(cri) => cri.container(&name.id, labels).await,
        }
    }
}

impl Events {
    /// Waits for the next change. Cancel safe.
    pub async fn next(&mut self) -> Result<Change, RuntimeError> {
        match self {
            Self::Docker(events) => events.next().await,
            Self::Grpc(stream, decode) => loop {
                match stream.receive().await {
                    Ok(Some(message)) => {
                        if let Some(change) = decode(&message)? {
                            return Ok(change);
                        }
                    }
                    Ok(None) => return Err(RuntimeError::EventsEnded),
                    // Runtimes without events are polled.
                    Err(status) if status.code == Code::Unimplemented => {
                        std::future::pending().await
                    }
                    Err(status) => return Err(status.into()),
                }
            },
        }
    }
}
