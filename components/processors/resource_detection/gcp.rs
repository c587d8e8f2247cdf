//! Google's metadata server.

use http::{Method, StatusCode};
use profcol_profile::Attributes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::{DetectionError, ResponseError};
use super::metadata::{Service, attributes};
use super::switches::{AttributeDefaults, Switches};

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
#[schemars(extend("x-refused" = {
    "labels": "instance labels are only in Google's Compute API, which is not queried; remove it",
}))]
pub struct GcpConfig {
    /// Which attributes to add: `<name>: {enabled: false}`.
    pub resource_attributes: Switches,
}

pub(super) const ATTRIBUTES: AttributeDefaults = &[
    ("cloud.provider", true),
    ("cloud.platform", true),
    ("cloud.account.id", true),
    ("cloud.region", true),
    ("cloud.availability_zone", true),
    ("host.id", true),
    ("host.name", true),
    ("host.type", true),
    ("k8s.cluster.name", true),
    ("gcp.gce.instance_group_manager.name", true),
    ("gcp.gce.instance_group_manager.region", true),
    ("gcp.gce.instance_group_manager.zone", true),
    ("gcp.gce.instance.hostname", false),
    ("gcp.gce.instance.name", false),
];

/// Required in requests, so that no web page can make them; in answers it proves the metadata server.
const FLAVOR: (&str, &str) = ("metadata-flavor", "Google");

/// The endpoint from the environment variable of Google's libraries, else the default.
pub(super) fn endpoint() -> String {
    let chosen = std::env::var("GCE_METADATA_HOST").ok();
    let chosen = chosen.filter(|it| !it.is_empty());
    let host = chosen.unwrap_or_else(|| "169.254.169.254".to_owned());
    match host.contains(':') {
        true => format!("http://{host}"),
        false => format!("http://{host}:80"),
    }
}

pub(super) async fn detect(
    config: &GcpConfig,
    endpoint: &str,
) -> Result<Attributes, DetectionError> {
    let service = Service::new(endpoint)?;
    let get = async |name: &str| {
        let path = format!("/computeMetadata/v1/{name}");
        let reply = service.ask(Method::GET, &path, &[FLAVOR]).await?;
        let flavor = reply.headers.get(FLAVOR.0);
        if flavor.is_none_or(|flavor| flavor != FLAVOR.1) {
            let missing = ResponseError::Missing("`Metadata-Flavor: Google`");
            return Err(service.error(&path, missing));
        }
        match reply.status {
            StatusCode::NOT_FOUND => Ok(String::new()),
            _ => service.text(&path, &reply),
        }
    };
    let project = get("project/project-id").await?;
    let id = get("instance/id").await?;
    let name = get("instance/name").await?;
    let host_name = get("instance/hostname").await?;
    let zone = get("instance/zone").await?;
    let zone = last(&zone);
    let kind = get("instance/machine-type").await?;
    let cluster = get("instance/attributes/cluster-name").await?;
    let creator = get("instance/attributes/created-by").await?;
    let manager = Manager::parse(&creator);
    let platform = match cluster.is_empty() {
        true => "gcp_compute_engine",
        false => "gcp_kubernetes_engine",
    };
    let mut found = attributes([
        ("cloud.provider", "gcp"),
        ("cloud.platform", platform),
        ("cloud.account.id", &project),
        ("cloud.region", region_of(zone)),
        ("cloud.availability_zone", zone),
        ("host.id", &id),
        ("host.name", &name),
        ("host.type", last(&kind)),
        ("k8s.cluster.name", &cluster),
        ("gcp.gce.instance_group_manager.name", manager.name),
        ("gcp.gce.instance_group_manager.region", manager.region),
        ("gcp.gce.instance_group_manager.zone", manager.zone),
        ("gcp.gce.instance.hostname", &host_name),
        ("gcp.gce.instance.name", &name),
    ]);
    config.resource_attributes.apply(ATTRIBUTES, &mut found);
    Ok(found)
}

/// The creator of the instance: `projects/1/zones/z/instanceGroupManagers/name`.
#[derive(Default)]
struct Manager<'a> {
    name: &'a str,
    region: &'a str,
    zone: &'a str,
}

impl<'a> Manager<'a> {
    fn parse(creator: &'a str) -> Self {
        let parts: Vec<&str> = creator.split('/').collect();
        let &[_, _, scope, value, "instanceGroupManagers", name] = &parts[..] else {
            return Self::default();
        };
        let (region, zone) = match scope {
            "regions" => (value, ""),
            _ => ("", value),
        };
        Self { name, region, zone }
    }
}

/// The zone `europe-west1-b` of `projects/1/zones/europe-west1-b`.
fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

fn region_of(zone: &str) -> &str {
    zone.rsplit_once('-').map_or("", |(region, _)| region)
}
