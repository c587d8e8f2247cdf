//! containerd's own services.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use profcol_net::grpc::{Code, Status};
use profcol_net::{GrpcCall, GrpcClient, GrpcStream, Message};
use profcol_profile::Attributes;
use prost::Message as _;

use super::described::{Described, Wanted};
use super::directory::{Key, MAX_CONTAINERS};
use super::messages::containerd::{
    Container, ContainerEvent, Envelope, GetContainerRequest, GetContainerResponse,
    ListNamespacesResponse, SubscribeRequest,
};
use super::runtime::{Change, LIMIT, Name, decode, events, grpc_client, within};

const NAMESPACES: &str = "/containerd.services.namespaces.v1.Namespaces/List";
const LIST: &str = "/containerd.services.containers.v1.Containers/ListStream";
const GET: &str = "/containerd.services.containers.v1.Containers/Get";
const EVENTS: &str = "/containerd.services.events.v1.Events/Subscribe";
/// Of containers alone, not of tasks, images and snapshots.
const FILTER: &str = r#"topic~="^/containers/""#;
const NAMESPACE: HeaderName = HeaderName::from_static("containerd-namespace");
/// Docker runs its containers in it, and keeps their names and images to itself: it is asked for them.
const DOCKERS: &str = "moby";
/// So many namespaces are asked for.
const MAX_NAMESPACES: usize = 64;

#[derive(Debug)]
pub(super) struct Containerd {
    client: GrpcClient,
}

impl Containerd {
    pub fn new(socket: &str) -> Result<Self, String> {
        let client = grpc_client(socket)?;
        Ok(Self { client })
    }

    pub async fn events(&self) -> Result<GrpcStream, String> {
        let request = SubscribeRequest {
            filters: vec![FILTER.to_owned()],
        };
        events(&self.client, EVENTS, request.encode_to_vec().into()).await
    }

    pub async fn list(&self, wanted: &Wanted) -> Result<HashMap<Key, Arc<Attributes>>, String> {
        let message = Message::from(Bytes::new());
        let reply = self.call(NAMESPACES, &message, HeaderMap::new()).await;
        let reply = reply.map_err(|status| status.to_string())?;
        let mut containers = HashMap::new();
        let ListNamespacesResponse { namespaces } = decode(&reply)?;
        let namespaces = namespaces.iter().map(|namespace| namespace.name.as_str());
        let namespaces = namespaces.filter(|name| *name != DOCKERS);
        for namespace in namespaces.take(MAX_NAMESPACES) {
            self.list_namespace(namespace, wanted, &mut containers)
                .await?;
        }
        Ok(containers)
    }

    async fn list_namespace(
        &self,
        namespace: &str,
        wanted: &Wanted,
        containers: &mut HashMap<Key, Arc<Attributes>>,
    ) -> Result<(), String> {
        let mut stream = within(async {
            let mut stream = self.client.stream(LIST, headers(namespace), None).await?;
            stream.send(Bytes::new(), true).await?;
            Ok::<_, Status>(stream)
        })
        .await?;
        while let Some(message) = within(stream.receive()).await? {
            let container = container(&message)?;
            containers.insert(
                Name::new(namespace, &container.id).key(),
                described(&container, namespace).attributes(wanted),
            );
            // One more than is kept, so that it is counted.
            if containers.len() > MAX_CONTAINERS {
                break;
            }
        }
        Ok(())
    }

    /// None where there is no such container any more.
    pub async fn container(
        &self,
        name: &Name,
        wanted: &Wanted,
    ) -> Result<Option<Arc<Attributes>>, String> {
        let request = GetContainerRequest {
            id: name.id.clone(),
        };
        let message = Message::from(Bytes::from(request.encode_to_vec()));
        let reply = match self.call(GET, &message, headers(&name.namespace)).await {
            Ok(reply) => reply,
            Err(status) if status.code == Code::NotFound => return Ok(None),
            Err(status) => return Err(status.to_string()),
        };
        let container = container(&reply)?;
        let described = described(&container, &name.namespace);
        Ok(Some(described.attributes(wanted)))
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
            timeout: Some(LIMIT),
        };
        Ok(self.client.unary(call).await?.message)
    }
}

pub(super) fn change(message: &[u8]) -> Result<Option<Change>, String> {
    let envelope: Envelope = decode(message)?;
    let event: ContainerEvent = decode(&envelope.event.unwrap_or_default().value)?;
    let name = Name {
        namespace: envelope.namespace,
        id: event.id,
    };
    Ok(match envelope.topic.as_str() {
        _ if name.id.is_empty() || name.namespace == DOCKERS => None,
        "/containers/create" | "/containers/update" => Some(Change::Look(name)),
        "/containers/delete" => Some(Change::End(name)),
        _ => None,
    })
}

fn container(message: &[u8]) -> Result<Container, String> {
    let GetContainerResponse { container } = decode(message)?;
    Ok(container.unwrap_or_default())
}

fn described<'a>(container: &'a Container, namespace: &'a str) -> Described<'a> {
    let label = |key| container.labels.get(key).map(String::as_str);
    // nerdctl's; elsewhere the id is the name.
    let name = label("nerdctl/name").or_else(|| label("io.kubernetes.container.name"));
    Described {
        id: &container.id,
        name: name.unwrap_or(&container.id),
        image: &container.image,
        image_id: "",
        runtime: "containerd",
        namespace,
        labels: Described::pairs(&container.labels),
    }
}

/// A namespace that is no header's value has none, and is answered by an error.
fn headers(namespace: &str) -> HeaderMap {
    let namespace = HeaderValue::from_str(namespace).ok();
    namespace
        .map(|value| (NAMESPACE, value))
        .into_iter()
        .collect()
}
