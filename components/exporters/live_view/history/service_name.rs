//! The label by which Pyroscope's users choose what they look at, also of programs that do not name their service.

use super::chunk::Chunk;

pub(in crate::live_view) const SERVICE_NAME: &str = "service_name";

/// What stands for a service: its workload, as OpenTelemetry advises for Kubernetes, its container, its unit, its program.
const STAND_INS: [&str; 11] = [
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
/// How OpenTelemetry calls services that nobody named, with the name of the program behind it.
const UNKNOWN: &str = "unknown_service";

impl Chunk {
    /// What `service.name` says, or what stands for it.
    pub(super) fn service_name(&self, series: u32) -> &str {
        let own = self.attribute(series, SERVICE_NAME);
        if !own.is_empty() && !own.starts_with(UNKNOWN) {
            return own;
        }
        let names = STAND_INS.into_iter().map(|label| {
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

/// Empty for scopes and slices, and for the manager of a user, in which all programs of a desktop run.
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
