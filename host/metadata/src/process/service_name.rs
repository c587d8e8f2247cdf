//! `service.name`, with the fallbacks of OpenTelemetry's SDKs and operator.

use profcol_profile::Attributes;

use crate::attributes::{add_missing, find, text_of};
use crate::otel_resource_attributes::parse;

const SERVICE_NAME: &str = "service.name";

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

/// Adds it if missing, with the name from the environment of a process or that of its executable as fallbacks; returns whether
/// it did.
pub(super) fn add(
    attributes: &mut Attributes,
    from_environment: Option<&str>,
    executable: Option<&str>,
) -> bool {
    if find(attributes, SERVICE_NAME).is_some() {
        return false;
    }
    let owner = || OWNERS.iter().find_map(|key| text_of(attributes, key));
    let name = from_environment.map(str::to_owned);
    let name = name.or_else(|| Some(owner()?.to_string()));
    let name = name.or_else(|| Some(format!("unknown_service:{}", executable?)));
    add_missing(
        attributes,
        [(SERVICE_NAME, name.as_deref().map(Into::into))],
    )
}

/// The name set in the process's environment.
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

#[cfg(test)]
mod tests {
    use profcol_profile::KeyValue;

    use super::*;

    #[test]
    fn names_a_service_by_the_usual_fallbacks() {
        let check = |variables: [&str; 2], attributes: &[(&str, &str)], expected: &str| {
            let [name, others] = variables;
            let variable = |key: &str| match key {
                "OTEL_SERVICE_NAME" => Some(name),
                _ => Some(others),
            };
            let service = from_environment(variable);
            let attributes = attributes.iter();
            let mut attributes: Attributes = attributes
                .map(|(key, value)| KeyValue::new(key, *value))
                .collect();
            add(&mut attributes, service.as_deref(), Some("exe"));
            assert_eq!(
                text_of(&attributes, SERVICE_NAME).as_deref(),
                Some(expected),
                "{variables:?}"
            );
        };
        let pod = ("k8s.pod.name", "pod");
        check(["a", "service.name=b"], &[], "a");
        check(["", "x=y, service.name = b%20c "], &[pod], "b c");
        // All or nothing of a variable, as in the SDKs.
        check(["", "service.name=b,z"], &[pod], "pod");
        check(["", "service.name="], &[pod], "pod");
        check(["", ""], &[pod, ("k8s.deployment.name", "shop")], "shop");
        check(["", ""], &[], "unknown_service:exe");
        check(["a", ""], &[("service.name", "mine")], "mine");
    }
}
