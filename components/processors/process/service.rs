//! The name of a service, by the fallbacks of OpenTelemetry's SDKs and operator.

use profcol_profile::Attributes;

use super::CachedProcess;
use crate::shared::lookup::{add_missing, find, text_of};
use crate::shared::resource_attributes::parse;

const SERVICE_NAME: &str = "service.name";

/// The variables that tell it.
pub(super) const VARIABLES: [&str; 2] = ["OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"];

/// The owners of a pod, closest to a service first.
const OWNERS: [&str; 7] = [
    "k8s.deployment.name",
    "k8s.statefulset.name",
    "k8s.daemonset.name",
    "k8s.cronjob.name",
    "k8s.job.name",
    "k8s.pod.name",
    "k8s.container.name",
];

/// Where it is missing; says whether it was.
pub(super) fn add_name(attributes: &mut Attributes, known: &CachedProcess) -> bool {
    if find(attributes, SERVICE_NAME).is_some() {
        return false;
    }
    let owner = || OWNERS.iter().find_map(|key| text_of(attributes, key));
    let name = known.service.as_deref().map(str::to_owned);
    let name = name.or_else(|| Some(owner()?.to_string()));
    let executable = || known.executable.as_ref();
    let name = name.or_else(|| Some(format!("unknown_service:{}", executable()?)));
    add_missing(
        attributes,
        [(SERVICE_NAME, name.as_deref().map(Into::into))],
    )
}

/// The name that the process's environment gives it.
pub(super) fn from_environment<'a>(variable: impl Fn(&str) -> Option<&'a str>) -> Option<String> {
    let [name, attributes] = VARIABLES.map(variable);
    let name = name.filter(|name| !name.is_empty()).map(str::to_owned);
    let among_others = || {
        let attributes = parse(attributes?).ok()?;
        let name = text_of(&attributes, SERVICE_NAME)?.to_string();
        (!name.is_empty()).then_some(name)
    };
    name.or_else(among_others)
}
