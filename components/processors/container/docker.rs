//! Docker's API, which Podman speaks too.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{HeaderMap, Method, StatusCode};
use profcol_net::{DirectHttp, DirectStream, HttpReply};
use profcol_profile::Attributes;
use serde::Deserialize;
use tokio::time::timeout;

use super::described::{Described, Wanted};
use super::directory::Key;
use super::runtime::{Change, Name, within};

/// Of containers, as JSON in the query.
const EVENTS: &str = "/events?filters=%7B%22type%22%3A%5B%22container%22%5D%7D";
/// Those that do not run, too: they may start any moment.
const LIST: &str = "/containers/json?all=1";
/// An event is no longer.
const MAX_EVENT: usize = 1 << 20;

/// How long to wait for the beginning of the stream of events: Podman says nothing before the first.
const BEGIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Docker {
    http: Arc<DirectHttp>,
}

/// The stream of events.
pub(super) struct Events {
    stream: Stream,
    /// The beginning of the next event.
    rest: Vec<u8>,
}

enum Stream {
    Asked(BoxFuture<'static, Result<DirectStream, String>>),
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
    pub fn new(socket: &str) -> Result<Self, String> {
        let http = DirectHttp::new(&format!("unix://{socket}"));
        Ok(Self {
            http: Arc::new(http.map_err(|error| error.to_string())?),
        })
    }

    /// Asked for when this returns, begun or not.
    pub async fn events(&self) -> Result<Events, String> {
        let http = Arc::clone(&self.http);
        let mut asked: BoxFuture<'static, _> = Box::pin(async move {
            let opened = http.open(Method::GET, EVENTS, HeaderMap::new()).await;
            let stream = opened.map_err(|error| error.to_string())?;
            match stream.status {
                StatusCode::OK => Ok(stream),
                status => Err(format!(
                    "it answered {status} when it was asked for its events"
                )),
            }
        });
        let stream = match timeout(BEGIN, &mut asked).await {
            Ok(begun) => Stream::Begun(begun?),
            Err(_) => Stream::Asked(asked),
        };
        Ok(Events {
            stream,
            rest: Vec::new(),
        })
    }

    pub async fn list(&self, wanted: &Wanted) -> Result<HashMap<Key, Arc<Attributes>>, String> {
        self.containers(LIST, wanted).await
    }

    /// None where there is no such container any more.
    pub async fn container(
        &self,
        id: &str,
        wanted: &Wanted,
    ) -> Result<Option<Arc<Attributes>>, String> {
        let path = format!("{LIST}&filters=%7B%22id%22%3A%5B%22{id}%22%5D%7D");
        Ok(self.containers(&path, wanted).await?.remove(id))
    }

    async fn containers(
        &self,
        path: &str,
        wanted: &Wanted,
    ) -> Result<HashMap<Key, Arc<Attributes>>, String> {
        let asked = self.http.send(Method::GET, path, HeaderMap::new());
        let reply: HttpReply = within(asked).await?;
        if reply.status != StatusCode::OK {
            return Err(format!(
                "it answered {} when it was asked for its containers",
                reply.status
            ));
        }
        let listed: Vec<Listed> = serde_json::from_slice(&reply.body)
            .map_err(|error| format!("its list of containers is not as Docker's: {error}"))?;
        let server = reply.headers.get(http::header::SERVER);
        let server = server
            .and_then(|name| name.to_str().ok())
            .unwrap_or_default();
        let runtime = match server.starts_with("Libpod") {
            true => "podman",
            false => "docker",
        };
        let described = |listed: Listed| {
            let attributes = listed.described(runtime).attributes(wanted);
            (listed.id, attributes)
        };
        Ok(listed.into_iter().map(described).collect())
    }
}

impl Listed {
    fn described(&self, runtime: &'static str) -> Described<'_> {
        let name = self.names.iter().flatten().next();
        let name = name.map_or("", |name| name.trim_start_matches('/'));
        let labels = self.labels.iter().flatten();
        let mut labels: Vec<_> = labels.map(|(key, value)| (&**key, &**value)).collect();
        labels.sort_unstable();
        Described {
            id: &self.id,
            name,
            image: &self.image,
            // Podman's for a container that was made of a folder, not of an image.
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
    /// Waits for the next change of a container. Cancelled, it loses nothing.
    pub async fn next(&mut self) -> Result<Change, String> {
        loop {
            while let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                if let Some(change) = change(&line)? {
                    return Ok(change);
                }
            }
            if self.rest.len() > MAX_EVENT {
                return Err("its events have no end".to_owned());
            }
            let stream = match &mut self.stream {
                Stream::Begun(stream) => stream,
                Stream::Asked(asked) => {
                    self.stream = Stream::Begun(asked.await?);
                    continue;
                }
            };
            match stream.next().await {
                Ok(Some(data)) => self.rest.extend_from_slice(&data),
                Ok(None) => return Err("it ended the stream of events".to_owned()),
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

fn change(line: &[u8]) -> Result<Option<Change>, String> {
    if line.trim_ascii().is_empty() {
        return Ok(None);
    }
    let event: Event = serde_json::from_slice(line)
        .map_err(|error| format!("its events are not as Docker's: {error}"))?;
    let id = event.actor.id;
    // It is to be part of a URL.
    if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Ok(None);
    }
    let name = Name {
        namespace: String::new(),
        id,
    };
    Ok(match event.action.as_str() {
        "create" | "start" | "rename" | "update" => Some(Change::Look(name)),
        "destroy" | "remove" => Some(Change::End(name)),
        _ => None,
    })
}
