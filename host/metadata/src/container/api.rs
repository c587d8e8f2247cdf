//! The common part of all container runtime clients.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use profcol_net::grpc::Status;
use profcol_net::tls::ClientTls;
use profcol_net::{
    ClientError, Compression, GrpcClient, GrpcClientSettings, GrpcStream, HttpError,
};
use prost::Message;
use tokio::time::timeout;

/// Timeout of a request.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// Limit of containers per runtime.
pub const MAX_CONTAINERS: usize = 16_384;

/// A container's name in a cgroup path: its id, or `namespace/id` if users choose the ids.
pub type Key = String;

/// Why a container runtime could not be queried.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Grpc(#[from] Status),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("{request} returned status {status}")]
    Status {
        request: &'static str,
        status: StatusCode,
    },
    #[error("no response within {0:?}")]
    Timeout(Duration),
    #[error("failed to decode the response: {0}")]
    Protobuf(#[from] prost::DecodeError),
    #[error("failed to decode {what}, expected Docker's JSON: {error}")]
    Json {
        what: &'static str,
        #[source]
        error: serde_json::Error,
    },
    #[error("event stream closed by the runtime")]
    EventsEnded,
    #[error("event larger than {0} bytes")]
    EventTooLong(usize),
}

/// An event of a container.
#[derive(Debug, PartialEq, Eq)]
pub enum Change {
    /// Created or changed: query it.
    Changed(ContainerName),
    Removed(ContainerName),
}

/// Identifies a container within its runtime.
#[derive(Debug, PartialEq, Eq)]
pub struct ContainerName {
    /// containerd's namespace; empty for other runtimes.
    pub namespace: String,
    pub id: String,
}

impl ContainerName {
    pub fn new(namespace: &str, id: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            id: id.to_owned(),
        }
    }

    /// As written in a cgroup path.
    pub fn key(&self) -> Key {
        match self.namespace.is_empty() || profcol_processes::is_container_id(&self.id) {
            true => self.id.clone(),
            false => format!("{}/{}", self.namespace, self.id),
        }
    }
}

pub fn grpc_client(socket: &str) -> Result<GrpcClient, RuntimeError> {
    let settings = GrpcClientSettings {
        endpoint: format!("unix://{socket}"),
        compression: Compression::None,
        tls: ClientTls {
            insecure: true,
            ..ClientTls::default()
        },
        ..GrpcClientSettings::default()
    };
    Ok(GrpcClient::new(&settings, None, "profcol")?)
}

/// Subscribes to events; the stream does not end.
pub async fn subscribe(
    client: &GrpcClient,
    path: &'static str,
    request: Bytes,
) -> Result<GrpcStream, RuntimeError> {
    within_timeout(async {
        let mut stream = client.stream(path, HeaderMap::new(), None).await?;
        stream.send(request, true).await?;
        Ok::<_, Status>(stream)
    })
    .await
}

pub fn decode<M: Message + Default>(message: &[u8]) -> Result<M, RuntimeError> {
    Ok(M::decode(message)?)
}

pub async fn within_timeout<T, E: Into<RuntimeError>>(
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, RuntimeError> {
    match timeout(TIMEOUT, work).await {
        Ok(done) => done.map_err(Into::into),
        Err(_) => Err(RuntimeError::Timeout(TIMEOUT)),
    }
}
