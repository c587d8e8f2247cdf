//! The label `service_name`, by which Pyroscope's users select profiles, with fallbacks for programs without one.

use crate::chunk::Chunk;

pub const SERVICE_NAME: &str = "service_name";

/// Fallbacks in order: the workload, as OpenTelemetry recommends for Kubernetes, the container, the unit, the program.
const FALLBACKS: [&str; 11] = [
    "k8s_deployment_name",
    "k8s_statefulset_name",
    "k8s_daemonset_name",
    "k8s_cronjob_name",
    "k8s_job_name",
    "k8s_pod_name",
    "k8s_container_name",
    "container_name",
    UNIT,
    "process_executable_name",
    "process_comm",
];
const UNIT: &str = "systemd_unit";
/// OpenTelemetry's name of unnamed services, followed by the program's name.
const UNKNOWN: &str = "unknown_service";

impl Chunk {
    /// The value of `service.name`, or of the first fallback.
    pub(super) fn service_name(&self, series: u32) -> &str {
        let own = self.attribute(series, SERVICE_NAME);
        if !own.is_empty() && !own.starts_with(UNKNOWN) {
            return own;
        }
        let names = FALLBACKS.into_iter().map(|label| {
            let value = self.attribute(series, label);
            match label {
                UNIT => service_of_unit(value),
                _ => value,
            }
        });
        let mut known = names.into_iter().filter(|name| !name.is_empty());
        match (known.next(), own) {
            (Some(name), _) => name,
            (None, "") => UNKNOWN,
            (None, own) => own,
        }
    }
}

/// Empty for scopes and slices, and for user managers, which run all programs of a desktop.
fn service_of_unit(unit: &str) -> &str {
    match unit.strip_suffix(".service") {
        Some(name) if !name.starts_with("user@") => name,
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_unit_of_one_program_is_a_service() {
        assert_eq!(service_of_unit("nginx.service"), "nginx");
        assert_eq!(service_of_unit("getty@tty1.service"), "getty@tty1");
        for unit in ["user@1000.service", "session-3.scope", "user.slice", ""] {
            assert_eq!(service_of_unit(unit), "", "{unit}");
        }
    }
}
