//! containerd's native API.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use profcol_net::grpc::{Code, Status};
use profcol_net::{GrpcCall, GrpcClient, GrpcStream, Message};
use profcol_profile::Attributes;
use prost::Message as _;

use super::api::{
    Change, ContainerName, Key, MAX_CONTAINERS, RuntimeError, TIMEOUT, decode, grpc_client,
    subscribe, within_timeout,
};
use super::description::{ContainerDescription, LabelFilter};
use super::messages::containerd::{
    Container, ContainerEvent, Envelope, GetContainerRequest, GetContainerResponse,
    ListNamespacesResponse, SubscribeRequest,
};

const NAMESPACES: &str = "/containerd.services.namespaces.v1.Namespaces/List";
const LIST: &str = "/containerd.services.containers.v1.Containers/ListStream";
const GET: &str = "/containerd.services.containers.v1.Containers/Get";
const EVENTS: &str = "/containerd.services.events.v1.Events/Subscribe";
/// Container events only, no tasks, images and snapshots.
const FILTER: &str = r#"topic~="^/containers/""#;
const NAMESPACE: HeaderName = HeaderName::from_static("containerd-namespace");
/// The namespace of Docker, which keeps names and images to itself: query Docker instead.
const DOCKERS: &str = "moby";
/// Maximum number of namespaces to query.
const MAX_NAMESPACES: usize = 64;

#[derive(Debug)]
pub struct Containerd {
    client: GrpcClient,
}

impl Containerd {
    pub fn new(socket: &str) -> Result<Self, RuntimeError> {
        let client = grpc_client(socket)?;
        Ok(Self { client })
    }

    pub async fn events(&self) -> Result<GrpcStream, RuntimeError> {
        let request = SubscribeRequest {
            filters: vec![FILTER.to_owned()],
        };
        subscribe(&self.client, EVENTS, request.encode_to_vec().into()).await
    }

    pub async fn list(
        &self,
        labels: &LabelFilter,
    ) -> Result<HashMap<Key, Arc<Attributes>>, RuntimeError> {
        let message = Message::from(Bytes::new());
        let reply = self.call(NAMESPACES, &message, HeaderMap::new()).await;
        let reply = reply?;
        let mut containers = HashMap::new();
        let ListNamespacesResponse { namespaces } = decode(&reply)?;
        let namespaces = namespaces.iter().map(|namespace| namespace.name.as_str());
        let namespaces = namespaces.filter(|name| *name != DOCKERS);
        for namespace in namespaces.take(MAX_NAMESPACES) {
            self.list_namespace(namespace, labels, &mut containers)
                .await?;
        }
        Ok(containers)
    }

    async fn list_namespace(
        &self,
        namespace: &str,
        labels: &LabelFilter,
        containers: &mut HashMap<Key, Arc<Attributes>>,
    ) -> Result<(), RuntimeError> {
        let mut stream = within_timeout(async {
            let mut stream = self.client.stream(LIST, headers(namespace), None).await?;
            stream.send(Bytes::new(), true).await?;
            Ok::<_, Status>(stream)
        })
        .await?;
        while let Some(message) = within_timeout(stream.receive()).await? {
            let container = container(&message)?;
            containers.insert(
                ContainerName::new(namespace, &container.id).key(),
                described(&container, namespace).attributes(labels),
            );
            // One more than is kept, so that a surplus is counted.
            if containers.len() > MAX_CONTAINERS {
                break;
            }
        }
        Ok(())
    }

    /// `None` if the container no longer exists.
    pub async fn container(
        &self,
        name: &ContainerName,
        labels: &LabelFilter,
    ) -> Result<Option<Arc<Attributes>>, RuntimeError> {
        let request = GetContainerRequest {
            id: name.id.clone(),
        };
        let message = Message::from(Bytes::from(request.encode_to_vec()));
        let reply = match self.call(GET, &message, headers(&name.namespace)).await {
            Ok(reply) => reply,
            Err(status) if status.code == Code::NotFound => return Ok(None),
            Err(status) => return Err(status.into()),
        };
        let container = container(&reply)?;
        let described = described(&container, &name.namespace);
        Ok(Some(described.attributes(labels)))
    }

    async fn call(
        &self,
        path: &'static str,
        message: &Message,
        headers: HeaderMap,
    ) -> Result<Bytes, Status> {
        let call = GrpcCall {
            path,
            message,
            headers,
            timeout: Some(TIMEOUT),
        };
        Ok(self.client.unary(call).await?.message)
    }
}

pub fn change(message: &[u8]) -> Result<Option<Change>, RuntimeError> {
    let envelope: Envelope = decode(message)?;
    let event: ContainerEvent = decode(&envelope.event.unwrap_or_default().value)?;
    let name = ContainerName {
        namespace: envelope.namespace,
        id: event.id,
    };
    Ok(match envelope.topic.as_str() {
        _ if name.id.is_empty() || name.namespace == DOCKERS => None,
        "/containers/create" | "/containers/update" => Some(Change::Changed(name)),
        "/containers/delete" => Some(Change::Removed(name)),
        _ => None,
    })
}

fn container(message: &[u8]) -> Result<Container, RuntimeError> {
    let GetContainerResponse { container } = decode(message)?;
    Ok(container.unwrap_or_default())
}

fn described<'a>(container: &'a Container, namespace: &'a str) -> ContainerDescription<'a> {
    let label = |key| container.labels.get(key).map(String::as_str);
    // Set by nerdctl; otherwise the id is the name.
    let name = label("nerdctl/name").or_else(|| label("io.kubernetes.container.name"));
    ContainerDescription {
        id: &container.id,
        name: name.unwrap_or(&container.id),
        image: &container.image,
        image_id: "",
        runtime: "containerd",
        namespace,
        labels: ContainerDescription::pairs(&container.labels),
    }
}

/// A namespace that is not a valid header value is omitted, which makes the request fail.
fn headers(namespace: &str) -> HeaderMap {
    let namespace = HeaderValue::from_str(namespace).ok();
    namespace
        .map(|value| (NAMESPACE, value))
        .into_iter()
        .collect()
}
