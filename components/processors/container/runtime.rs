//! A runtime, whichever it is: all of its containers, and what changes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use profcol_net::grpc::{Code, Status};
use profcol_net::tls::ClientTls;
use profcol_net::{Compression, GrpcClient, GrpcClientSettings, GrpcStream};
use profcol_profile::Attributes;
use prost::Message;
use tokio::time::timeout;

use super::config::SocketsConfig;
use super::containerd::{self, Containerd};
use super::cri::{self, Cri};
use super::described::Wanted;
use super::directory::Key;
use super::docker::{self, Docker};

/// How long a runtime may take for one answer.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Docker,
    Containerd,
    Cri,
}

/// A socket, and what is spoken there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Socket {
    pub kind: Kind,
    pub path: String,
}

/// A runtime that is asked.
pub(super) enum Runtime {
    Docker(Docker),
    Containerd(Containerd),
    Cri(Cri),
}

/// What it tells by itself.
pub(super) enum Events {
    Docker(docker::Events),
    Grpc(GrpcStream, fn(&[u8]) -> Result<Option<Change>, String>),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// There is something new to know of it.
    Look(Name),
    End(Name),
}

/// Which container, among those of one runtime.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Name {
    /// Of containerd, else empty.
    pub namespace: String,
    pub id: String,
}

impl Socket {
    /// Those that the configuration names, in the order in which they are believed: Docker knows
    /// more of its containers than containerd, which runs them.
    pub fn all(config: &SocketsConfig) -> Vec<Socket> {
        if !config.enabled {
            return Vec::new();
        }
        let kinds = [
            (Kind::Docker, &config.docker),
            (Kind::Cri, &config.cri),
            (Kind::Containerd, &config.containerd),
        ];
        let sockets = kinds.into_iter().flat_map(|(kind, paths)| {
            let socket = move |path: &String| Socket {
                kind,
                path: path.clone(),
            };
            paths.iter().map(socket)
        });
        sockets.collect()
    }

    /// Connects when it is first asked.
    pub fn open(&self) -> Result<Runtime, String> {
        Ok(match self.kind {
            Kind::Docker => Runtime::Docker(Docker::new(&self.path)?),
            Kind::Containerd => Runtime::Containerd(Containerd::new(&self.path)?),
            Kind::Cri => Runtime::Cri(Cri::new(&self.path)?),
        })
    }
}

impl Runtime {
    pub async fn events(&self) -> Result<Events, String> {
        Ok(match self {
            Self::Docker(docker) => Events::Docker(docker.events().await?),
            Self::Containerd(it) => Events::Grpc(it.events().await?, containerd::change),
            Self::Cri(it) => Events::Grpc(it.events().await?, cri::change),
        })
    }

    pub async fn list(&self, wanted: &Wanted) -> Result<HashMap<Key, Arc<Attributes>>, String> {
        match self {
            Self::Docker(docker) => docker.list(wanted).await,
            Self::Containerd(containerd) => containerd.list(wanted).await,
            Self::Cri(cri) => cri.list(wanted).await,
        }
    }

    /// None where there is no such container any more.
    pub async fn container(
        &self,
        name: &Name,
        wanted: &Wanted,
    ) -> Result<Option<Arc<Attributes>>, String> {
        match self {
            Self::Docker(docker) => docker.container(&name.id, wanted).await,
            Self::Containerd(containerd) => containerd.container(name, wanted).await,
            Self::Cri(cri) => cri.container(&name.id, wanted).await,
        }
    }
}

impl Events {
    /// Waits for the next change. Cancelled, it loses nothing.
    pub async fn next(&mut self) -> Result<Change, String> {
        match self {
            Self::Docker(events) => events.next().await,
            Self::Grpc(stream, read) => loop {
                match stream.receive().await {
                    Ok(Some(message)) => {
                        if let Some(change) = read(&message)? {
                            return Ok(change);
                        }
                    }
                    Ok(None) => return Err("it ended the stream of events".to_owned()),
                    // What is new is then learned by asking.
                    Err(status) if status.code == Code::Unimplemented => {
                        std::future::pending().await
                    }
                    Err(status) => return Err(status.to_string()),
                }
            },
        }
    }
}

impl Name {
    pub fn new(namespace: &str, id: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            id: id.to_owned(),
        }
    }

    /// As it stands in the path of a cgroup.
    pub fn key(&self) -> Key {
        match self.namespace.is_empty() || profcol_processes::is_container_id(&self.id) {
            true => self.id.clone(),
            false => format!("{}/{}", self.namespace, self.id),
        }
    }
}

pub(super) fn grpc_client(socket: &str) -> Result<GrpcClient, String> {
    let settings = GrpcClientSettings {
        endpoint: format!("unix://{socket}"),
        compression: Compression::None,
        tls: ClientTls {
            insecure: true,
            ..ClientTls::default()
        },
        ..GrpcClientSettings::default()
    };
    GrpcClient::new(&settings, None, "profcol").map_err(|error| error.to_string())
}

/// What is told without end, once it was asked for.
pub(super) async fn events(
    client: &GrpcClient,
    path: &'static str,
    asked: Bytes,
) -> Result<GrpcStream, String> {
    within(async {
        let mut stream = client.stream(path, HeaderMap::new(), None).await?;
        stream.send(asked, true).await?;
        Ok::<_, Status>(stream)
    })
    .await
}

pub(super) fn decode<M: Message + Default>(answer: &[u8]) -> Result<M, String> {
    M::decode(answer).map_err(|error| format!("its answer cannot be read: {error}"))
}

pub(super) async fn within<T, E: std::fmt::Display>(
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, String> {
    match timeout(LIMIT, work).await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err(format!("it did not answer within {LIMIT:?}")),
    }
}
