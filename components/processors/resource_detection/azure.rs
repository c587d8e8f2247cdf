//! Azure's instance metadata.

use http::Method;
use profcol_profile::{Attributes, KeyValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::{DetectionError, ResponseError};
use super::metadata::{Service, attributes, matches_any};
use super::switches::{AttributeDefaults, Switches};

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct AzureConfig {
    /// The VM tags to add as `azure.tag.<key>`: regular expressions for their keys.
    pub tags: Vec<String>,
    /// Which attributes to add: `<name>: {enabled: false}`.
    pub resource_attributes: Switches,
}

pub(super) const ATTRIBUTES: AttributeDefaults = &[
    ("cloud.provider", true),
    ("cloud.platform", true),
    ("cloud.account.id", true),
    ("cloud.region", true),
    ("cloud.availability_zone", false),
    ("host.id", true),
    ("host.name", true),
    ("azure.vm.name", true),
    ("azure.vm.size", true),
    ("azure.vm.scaleset.name", true),
    ("azure.resourcegroup.name", true),
];

pub(super) const ENDPOINT: &str = "http://169.254.169.254:80";
const COMPUTE: &str = "/metadata/instance/compute?api-version=2020-09-01&format=json";

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Compute {
    location: String,
    name: String,
    vm_id: String,
    vm_size: String,
    subscription_id: String,
    resource_group_name: String,
    vm_scale_set_name: String,
    zone: String,
    tags_list: Vec<Tag>,
}

#[derive(Deserialize)]
struct Tag {
    name: String,
    value: String,
}

pub(super) async fn detect(
    config: &AzureConfig,
    endpoint: &str,
) -> Result<Attributes, DetectionError> {
    let service = Service::new(endpoint)?;
    let header = [("metadata", "true")];
    let reply = service.ask(Method::GET, COMPUTE, &header).await?;
    let compute: Compute = serde_json::from_str(&service.text(COMPUTE, &reply)?)
        .map_err(|error| service.error(COMPUTE, error))?;
    if compute.vm_id.is_empty() {
        return Err(service.error(COMPUTE, ResponseError::Missing("VM ID")));
    }
    let mut found = attributes([
        ("cloud.provider", "azure"),
        ("cloud.platform", "azure_vm"),
        ("cloud.account.id", &compute.subscription_id),
        ("cloud.region", &compute.location),
        ("cloud.availability_zone", &compute.zone),
        ("host.id", &compute.vm_id),
        ("host.name", &compute.name),
        ("azure.vm.name", &compute.name),
        ("azure.vm.size", &compute.vm_size),
        ("azure.vm.scaleset.name", &compute.vm_scale_set_name),
        ("azure.resourcegroup.name", &compute.resource_group_name),
    ]);
    for Tag { name, value } in &compute.tags_list {
        if matches_any(&config.tags, name) {
            found.push(KeyValue::new(&format!("azure.tag.{name}"), value.as_str()));
        }
    }
    config.resource_attributes.apply(ATTRIBUTES, &mut found);
    Ok(found)
}
