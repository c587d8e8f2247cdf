//! The container runtime interface of Kubernetes.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use profcol_net::{GrpcCall, GrpcClient, GrpcStream, Message};
use profcol_profile::Attributes;
use prost::Message as _;

use super::described::{Described, Wanted};
use super::directory::Key;
use super::messages::cri::{
    Container, ContainerEventResponse, ContainerEventType, ContainerFilter, ListContainersRequest,
    ListContainersResponse, VersionResponse,
};
use super::runtime::{Change, LIMIT, Name, decode, events, grpc_client};

const VERSION: &str = "/runtime.v1.RuntimeService/Version";
const LIST: &str = "/runtime.v1.RuntimeService/ListContainers";
const EVENTS: &str = "/runtime.v1.RuntimeService/GetContainerEvents";

/// As they call themselves, and as the attribute does.
const RUNTIMES: [(&str, &str); 3] = [
    ("cri-o", "cri-o"),
    ("containerd", "containerd"),
    ("docker", "docker"),
];

#[derive(Debug)]
pub(super) struct Cri {
    client: GrpcClient,
}

impl Cri {
    pub fn new(socket: &str) -> Result<Self, String> {
        let client = grpc_client(socket)?;
        Ok(Self { client })
    }

    /// Not every runtime has them; the first answer says so.
    pub async fn events(&self) -> Result<GrpcStream, String> {
        events(&self.client, EVENTS, Bytes::new()).await
    }

    pub async fn list(&self, wanted: &Wanted) -> Result<HashMap<Key, Arc<Attributes>>, String> {
        self.containers(None, wanted).await
    }

    /// None where there is no such container any more.
    pub async fn container(
        &self,
        id: &str,
        wanted: &Wanted,
    ) -> Result<Option<Arc<Attributes>>, String> {
        let filter = ContainerFilter { id: id.to_owned() };
        Ok(self.containers(Some(filter), wanted).await?.remove(id))
    }

    async fn containers(
        &self,
        filter: Option<ContainerFilter>,
        wanted: &Wanted,
    ) -> Result<HashMap<Key, Arc<Attributes>>, String> {
        let version = self.call(VERSION, Bytes::new()).await?;
        let VersionResponse { runtime_name } = decode(&version)?;
        let known = RUNTIMES.iter().find(|(name, _)| *name == runtime_name);
        let runtime = known.map_or("", |(_, name)| name);
        let request = ListContainersRequest { filter };
        let reply = self.call(LIST, request.encode_to_vec().into()).await?;
        let ListContainersResponse { containers } = decode(&reply)?;
        let attributes = containers.into_iter().map(|container| {
            let attributes = described(&container, runtime).attributes(wanted);
            (container.id, attributes)
        });
        Ok(attributes.collect())
    }

    async fn call(&self, path: &'static str, message: Bytes) -> Result<Bytes, String> {
        let call = GrpcCall {
            path,
            message: &Message::from(message),
            headers: HeaderMap::new(),
            timeout: Some(LIMIT),
        };
        let reply = self.client.unary(call).await;
        Ok(reply.map_err(|status| status.to_string())?.message)
    }
}

pub(super) fn change(message: &[u8]) -> Result<Option<Change>, String> {
    let event: ContainerEventResponse = decode(message)?;
    let name = Name::new("", &event.container_id);
    Ok(match event.container_event_type() {
        _ if name.id.is_empty() => None,
        ContainerEventType::Deleted => Some(Change::End(name)),
        _ => Some(Change::Look(name)),
    })
}

fn described<'a>(container: &'a Container, runtime: &'static str) -> Described<'a> {
    Described {
        id: &container.id,
        name: container.metadata.as_ref().map_or("", |it| &it.name),
        image: container.image.as_ref().map_or("", |it| &it.image),
        // The reference may be a digest; the id is newer.
        image_id: match container.image_id.is_empty() {
            true => &container.image_ref,
            false => &container.image_id,
        },
        runtime,
        namespace: "",
        labels: Described::pairs(&container.labels),
    }
}
