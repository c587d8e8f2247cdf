//! The Kubernetes container runtime interface (CRI).

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use profcol_net::{GrpcCall, GrpcClient, GrpcStream, Message};
use profcol_profile::Attributes;
use prost::Message as _;

use super::api::{
    Change, ContainerName, Key, RuntimeError, TIMEOUT, decode, grpc_client, subscribe,
};
use super::description::{ContainerDescription, LabelFilter};
use super::messages::cri::{
    Container, ContainerEventResponse, ContainerEventType, ContainerFilter, ListContainersRequest,
    ListContainersResponse, VersionResponse,
};

const VERSION: &str = "/runtime.v1.RuntimeService/Version";
const LIST: &str = "/runtime.v1.RuntimeService/ListContainers";
const EVENTS: &str = "/runtime.v1.RuntimeService/GetContainerEvents";

/// The runtime's own name, and the attribute value.
const RUNTIMES: [(&str, &str); 3] = [
    ("cri-o", "cri-o"),
    ("containerd", "containerd"),
    ("docker", "docker"),
];

#[derive(Debug)]
pub struct Cri {
    client: GrpcClient,
}

impl Cri {
    pub fn new(socket: &str) -> Result<Self, RuntimeError> {
        let client = grpc_client(socket)?;
        Ok(Self { client })
    }

    /// Not every runtime supports events; the first response shows it.
    pub async fn events(&self) -> Result<GrpcStream, RuntimeError> {
        subscribe(&self.client, EVENTS, Bytes::new()).await
    }

    pub async fn list(
        &self,
        labels: &LabelFilter,
    ) -> Result<HashMap<Key, Arc<Attributes>>, RuntimeError> {
        self.containers(None, labels).await
    }

    /// `None` if the container no longer exists.
    pub async fn container(
        &self,
        id: &str,
        labels: &LabelFilter,
    ) -> Result<Option<Arc<Attributes>>, RuntimeError> {
        let filter = ContainerFilter { id: id.to_owned() };
        Ok(self.containers(Some(filter), labels).await?.remove(id))
    }

    async fn containers(
        &self,
        filter: Option<ContainerFilter>,
        labels: &LabelFilter,
    ) -> Result<HashMap<Key, Arc<Attributes>>, RuntimeError> {
        let version = self.call(VERSION, Bytes::new()).await?;
        let VersionResponse { runtime_name } = decode(&version)?;
        let runtime = RUNTIMES.iter().find(|(name, _)| *name == runtime_name);
        let runtime = runtime.map_or("", |(_, name)| name);
        let request = ListContainersRequest { filter };
        let reply = self.call(LIST, request.encode_to_vec().into()).await?;
        let ListContainersResponse { containers } = decode(&reply)?;
        let attributes = containers.into_iter().map(|container| {
            let attributes = described(&container, runtime).attributes(labels);
            (container.id, attributes)
        });
        Ok(attributes.collect())
    }

    async fn call(&self, path: &'static str, message: Bytes) -> Result<Bytes, RuntimeError> {
        let call = GrpcCall {
            path,
            message: &Message::from(message),
            headers: HeaderMap::new(),
            timeout: Some(TIMEOUT),
        };
        let reply = self.client.unary(call).await;
        Ok(reply?.message)
    }
}

pub fn change(message: &[u8]) -> Result<Option<Change>, RuntimeError> {
    let event: ContainerEventResponse = decode(message)?;
    let name = ContainerName::new("", &event.container_id);
    Ok(match event.container_event_type() {
        _ if name.id.is_empty() => None,
        ContainerEventType::Deleted => Some(Change::Removed(name)),
        _ => Some(Change::Changed(name)),
    })
}

fn described<'a>(container: &'a Container, runtime: &'static str) -> ContainerDescription<'a> {
    ContainerDescription {
        id: &container.id,
        name: container.metadata.as_ref().map_or("", |it| &it.name),
        image: container.image.as_ref().map_or("", |it| &it.image),
        // The reference may be a digest; the id field is newer.
        image_id: match container.image_id.is_empty() {
            true => &container.image_ref,
            false => &container.image_id,
        },
        runtime,
        namespace: "",
        labels: ContainerDescription::pairs(&container.labels),
    }
}
