//! Attributes that Docker reports about its host and profcol's container.

use http::Method;
use profcol_profile::{Attributes, KeyValue, Value};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::{DetectionError, ResponseError};
use super::metadata::{Service, attributes};
use super::switches::{AttributeDefaults, Switches};
use profcol_metadata::Image;

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct DockerConfig {
    /// Which attributes to add: `<name>: {enabled: true}`.
    pub resource_attributes: Switches,
}

pub(super) const ATTRIBUTES: AttributeDefaults = &[
    ("host.name", true),
    ("os.type", true),
    ("container.name", false),
    ("container.image.name", false),
    ("container.image.tags", false),
    ("container.image.id", false),
];

const INFO: &str = "/info";

/// The endpoint from the environment variable of Docker's client, else the default.
pub(super) fn endpoint() -> String {
    let chosen = std::env::var("DOCKER_HOST").ok();
    let chosen = chosen.filter(|it| !it.is_empty());
    let chosen = chosen.unwrap_or_else(|| "unix:///run/docker.sock".to_owned());
    match chosen.strip_prefix("tcp://") {
        Some(address) => format!("http://{address}"),
        None => chosen,
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Info {
    name: String,
    #[serde(rename = "OSType")]
    os_type: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Container {
    name: String,
    #[serde(rename = "Image")]
    image_id: String,
    config: Config,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Config {
    image: String,
}

/// `own` is the ID of the container that profcol runs in.
pub(super) async fn detect(
    switches: &Switches,
    endpoint: &str,
    own: Option<&str>,
) -> Result<Attributes, DetectionError> {
    let service = Service::new(endpoint)?;
    let info: Info = get(&service, INFO).await?;
    if info.name.is_empty() {
        return Err(service.error(INFO, ResponseError::Missing("host name")));
    }
    let mut found = attributes([("host.name", &*info.name), ("os.type", &info.os_type)]);
    let is_of_container = |name: &str| name.starts_with("container.");
    if let Some(id) = own.filter(|_| switches.has(ATTRIBUTES, is_of_container)) {
        let container: Container = get(&service, &format!("/containers/{id}/json")).await?;
        let image = Image::parse(&container.config.image);
        found.extend(attributes([
            ("container.name", container.name.trim_start_matches('/')),
            ("container.image.name", image.name),
            ("container.image.id", &container.image_id),
        ]));
        let tags = image.tag.map(|tag| Value::Array([Value::from(tag)].into()));
        found.extend(tags.map(|tags| KeyValue::new("container.image.tags", tags)));
    }
    switches.apply(ATTRIBUTES, &mut found);
    Ok(found)
}

async fn get<T: DeserializeOwned>(service: &Service, path: &str) -> Result<T, DetectionError> {
    let reply = service.ask(Method::GET, path, &[]).await?;
    serde_json::from_str(&service.text(path, &reply)?).map_err(|error| service.error(path, error))
}
