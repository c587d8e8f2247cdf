//! The container runtime interface of Kubernetes.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use profcol_net::{GrpcCall, GrpcClient, GrpcStream, Message};
use profcol_profile::Attributes;
use profcol_profile::proto::{Writer, tag};

use super::described::{Described, Wanted};
use super::directory::Key;
use super::messages::{cri_containers, cri_event, field, with_text};
use super::runtime::{Change, LIMIT, Name, decode_error, events, grpc_client};

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
        self.containers(Bytes::new(), wanted).await
    }

    /// None where there is no such container any more.
    pub async fn container(
        &self,
        id: &str,
        wanted: &Wanted,
    ) -> Result<Option<Arc<Attributes>>, String> {
        let mut request = Writer::default();
        request.bytes(tag::len(1), &with_text(id));
        let request = request.into_vec().into();
        Ok(self.containers(request, wanted).await?.remove(id))
    }

    async fn containers(
        &self,
        request: Bytes,
        wanted: &Wanted,
    ) -> Result<HashMap<Key, Arc<Attributes>>, String> {
        let version = self.call(VERSION, Bytes::new()).await?;
        let runtime = field(&version, tag::len(2)).map_err(decode_error)?;
        let known = RUNTIMES.iter().find(|(name, _)| name.as_bytes() == runtime);
        let runtime = known.map_or("", |(_, name)| name);
        let reply = self.call(LIST, request).await?;
        let containers = cri_containers(&reply).map_err(decode_error)?.into_iter();
        let described = containers.map(|container| {
            let container = Described {
                runtime,
                ..container
            };
            (container.id.to_owned(), container.attributes(wanted))
        });
        Ok(described.collect())
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
    let (id, is_deleted) = cri_event(message).map_err(decode_error)?;
    let name = Name::new("", id);
    Ok(match is_deleted {
        _ if id.is_empty() => None,
        true => Some(Change::End(name)),
        false => Some(Change::Look(name)),
    })
}
