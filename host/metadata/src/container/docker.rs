//! Docker's API, which Podman also implements.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{HeaderMap, Method, StatusCode};
use profcol_net::{DirectHttp, DirectStream, HttpReply};
use profcol_profile::Attributes;
use serde::Deserialize;
use tokio::time::timeout;

use super::api::{Change, ContainerName, Key, RuntimeError, within_timeout};
use super::description::{ContainerDescription, LabelFilter};

/// Container events only, as JSON in the query.
const EVENTS: &str = "/events?filters=%7B%22type%22%3A%5B%22container%22%5D%7D";
/// Stopped containers, too: they may start at any time.
const LIST: &str = "/containers/json?all=1";
/// Size limit of an event.
const MAX_EVENT: usize = 1 << 20;

/// How long to wait for the response to an event subscription: Podman does not respond before the first event.
const BEGIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Docker {
    http: Arc<DirectHttp>,
}

/// The event stream.
pub struct Events {
    stream: Stream,
    /// Incomplete data of the next event.
    rest: Vec<u8>,
}

enum Stream {
    Pending(BoxFuture<'static, Result<DirectStream, RuntimeError>>),
    Begun(DirectStream),
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Listed {
    id: String,
    names: Option<Vec<String>>,
    image: String,
    #[serde(rename = "ImageID")]
    image_id: String,
    labels: Option<HashMap<String, String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Event {
    action: String,
    actor: Actor,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Actor {
    #[serde(rename = "ID")]
    id: String,
}

impl Docker {
    pub fn new(socket: &str) -> Result<Self, RuntimeError> {
        let http = DirectHttp::new(&format!("unix://{socket}"));
        Ok(Self {
            http: Arc::new(http?),
        })
    }

    /// The request has been sent when this returns, whether or not the stream has started.
    pub async fn events(&self) -> Result<Events, RuntimeError> {
        let http = Arc::clone(&self.http);
        let mut pending: BoxFuture<'static, _> = Box::pin(async move {
            let opened = http.open(Method::GET, EVENTS, HeaderMap::new()).await;
            let stream = opened?;
            match stream.status {
                StatusCode::OK => Ok(stream),
                status => Err(RuntimeError::Status {
                    request: "event subscription",
                    status,
                }),
            }
        });
        let stream = match timeout(BEGIN, &mut pending).await {
            Ok(begun) => Stream::Begun(begun?),
            Err(_) => Stream::Pending(pending),
        };
        Ok(Events {
            stream,
            rest: Vec::new(),
        })
    }

    pub async fn list(
        &self,
        labels: &LabelFilter,
    ) -> Result<HashMap<Key, Arc<Attributes>>, RuntimeError> {
        self.containers(LIST, labels).await
    }

    /// `None` if the container no longer exists.
    pub async fn container(
        &self,
        id: &str,
        labels: &LabelFilter,
    ) -> Result<Option<Arc<Attributes>>, RuntimeError> {
        let path = format!("{LIST}&filters=%7B%22id%22%3A%5B%22{id}%22%5D%7D");
        Ok(self.containers(&path, labels).await?.remove(id))
    }

    async fn containers(
        &self,
        path: &str,
        labels: &LabelFilter,
    ) -> Result<HashMap<Key, Arc<Attributes>>, RuntimeError> {
        let request = self.http.send(Method::GET, path, HeaderMap::new());
        let reply: HttpReply = within_timeout(request).await?;
        if reply.status != StatusCode::OK {
            return Err(RuntimeError::Status {
                request: "container list request",
                status: reply.status,
            });
        }
        let listed: Vec<Listed> =
            serde_json::from_slice(&reply.body).map_err(|error| RuntimeError::Json {
                what: "the container list",
                error,
            })?;
        let server = reply.headers.get(http::header::SERVER);
        let server = server
            .and_then(|name| name.to_str().ok())
            .unwrap_or_default();
        let runtime = match server.starts_with("Libpod") {
            true => "podman",
            false => "docker",
        };
        let described = |listed: Listed| {
            let attributes = listed.described(runtime).attributes(labels);
            (listed.id, attributes)
        };
        Ok(listed.into_iter().map(described).collect())
    }
}

impl Listed {
    fn described(&self, runtime: &'static str) -> ContainerDescription<'_> {
        let name = self.names.iter().flatten().next();
        let name = name.map_or("", |name| name.trim_start_matches('/'));
        let labels = self.labels.iter().flatten();
        let mut labels: Vec<_> = labels.map(|(key, value)| (&**key, &**value)).collect();
        labels.sort_unstable();
        ContainerDescription {
            id: &self.id,
            name,
            image: &self.image,
            // Podman's value for a container made from a directory instead of an image.
            image_id: match &*self.image_id {
                "sha256:" => "",
                id => id,
            },
            runtime,
            namespace: "",
            labels,
        }
    }
}

impl Events {
    /// Waits for the next container change. Cancel safe.
    pub async fn next(&mut self) -> Result<Change, RuntimeError> {
        loop {
            while let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                if let Some(change) = change(&line)? {
                    return Ok(change);
                }
            }
            if self.rest.len() > MAX_EVENT {
                return Err(RuntimeError::EventTooLong(MAX_EVENT));
            }
            let stream = match &mut self.stream {
                Stream::Begun(stream) => stream,
                Stream::Pending(pending) => {
                    self.stream = Stream::Begun(pending.await?);
                    continue;
                }
            };
            match stream.next().await {
                Ok(Some(data)) => self.rest.extend_from_slice(&data),
                Ok(None) => return Err(RuntimeError::EventsEnded),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn change(line: &[u8]) -> Result<Option<Change>, RuntimeError> {
    if line.trim_ascii().is_empty() {
        return Ok(None);
    }
    let event: Event = serde_json::from_slice(line).map_err(|error| RuntimeError::Json {
        what: "an event",
        error,
    })?;
    let id = event.actor.id;
    // It becomes part of a URL.
    if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Ok(None);
    }
    let name = ContainerName {
        namespace: String::new(),
        id,
    };
    Ok(match event.action.as_str() {
        "create" | "start" | "rename" | "update" => Some(Change::Changed(name)),
        "destroy" | "remove" => Some(Change::Removed(name)),
        _ => None,
    })
}
