//! Amazon's instance metadata.

use http::{Method, StatusCode};
use profcol_profile::{Attributes, KeyValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::{DetectionError, ResponseError};
use super::metadata::{Service, attributes, matches_any};
use super::switches::{AttributeDefaults, Switches};

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
pub struct Ec2Config {
    /// The instance tags to add as `ec2.tag.<key>`: regular expressions for their keys.
    pub tags: Vec<String>,
    /// Read the tags from the instance metadata; required for `tags`.
    pub tags_from_imds: bool,
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
    ("host.image.id", true),
    ("host.name", true),
    ("host.type", true),
];

const TOKEN: &str = "/latest/api/token";
const DOCUMENT: &str = "/latest/dynamic/instance-identity/document";
const HOST_NAME: &str = "/latest/meta-data/hostname";
const TAGS: &str = "/latest/meta-data/tags/instance";

/// The endpoint from the environment variable of the AWS SDKs, else the default.
pub(super) fn endpoint() -> String {
    let chosen = std::env::var("AWS_EC2_METADATA_SERVICE_ENDPOINT").ok();
    let chosen = chosen.filter(|it| !it.is_empty());
    chosen.unwrap_or_else(|| "http://169.254.169.254:80".to_owned())
}

#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[derive(Default)]
struct Document {
    account_id: String,
    region: String,
    availability_zone: String,
    instance_id: String,
    image_id: String,
    instance_type: String,
}

pub(super) async fn detect(
    config: &Ec2Config,
    endpoint: &str,
) -> Result<Attributes, DetectionError> {
    let service = Service::new(endpoint)?;
    let token = token(&service).await?;
    let get = async |path: &str| {
        let header = ("x-aws-ec2-metadata-token", token.as_deref());
        let headers = header.1.map(|token| [(header.0, token)]);
        let headers = headers.as_ref().map_or(&[][..], |headers| headers);
        let reply = service.ask(Method::GET, path, headers).await?;
        service.text(path, &reply)
    };
    let document: Document = serde_json::from_str(&get(DOCUMENT).await?)
        .map_err(|error| service.error(DOCUMENT, error))?;
    if document.instance_id.is_empty() {
        return Err(service.error(DOCUMENT, ResponseError::Missing("instance ID")));
    }
    let host_name = get(HOST_NAME).await?;
    let mut found = attributes([
        ("cloud.provider", "aws"),
        ("cloud.platform", "aws_ec2"),
        ("cloud.account.id", &document.account_id),
        ("cloud.region", &document.region),
        ("cloud.availability_zone", &document.availability_zone),
        ("host.id", &document.instance_id),
        ("host.image.id", &document.image_id),
        ("host.name", &host_name),
        ("host.type", &document.instance_type),
    ]);
    if !config.tags.is_empty() {
        for key in get(TAGS).await?.lines() {
            if matches_any(&config.tags, key) {
                let value = get(&format!("{TAGS}/{key}")).await?;
                found.push(KeyValue::new(&format!("ec2.tag.{key}"), value.as_str()));
            }
        }
    }
    config.resource_attributes.apply(ATTRIBUTES, &mut found);
    Ok(found)
}

/// `None` for IMDSv1, which has no tokens.
async fn token(service: &Service) -> Result<Option<String>, DetectionError> {
    let lifetime = [("x-aws-ec2-metadata-token-ttl-seconds", "60")];
    let reply = service.ask(Method::PUT, TOKEN, &lifetime).await?;
    match reply.status {
        StatusCode::FORBIDDEN | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Ok(None),
        _ => service.text(TOKEN, &reply).map(Some),
    }
}
