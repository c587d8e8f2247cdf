//! Other profilers on this host: they coexist, but their costs add up.

use std::fs;
use std::path::Path;

use profcol_component::Check;

const NAME: &str = "other_profilers";

/// Known profilers: their `comm`, at most fifteen characters, and their usual name.
const PROFILERS: &[(&str, &str)] = &[
    ("parca-agent", "Parca Agent"),
    ("ebpf-profiler", "the OpenTelemetry eBPF profiler"),
    ("otelcol-ebpf-pr", "the OpenTelemetry eBPF profiler"),
    ("opentelemetry-e", "the OpenTelemetry eBPF profiler"),
    ("perf", "perf"),
    ("profcol", "another profcol"),
    ("pyroscope", "Pyroscope"),
    ("gprofiler", "gProfiler"),
    ("perforator", "Perforator"),
];

pub(super) fn check(proc: &Path, own: u32) -> Check {
    let pids = profcol_processes::pids_in(proc).into_iter();
    let found: Vec<String> = pids
        .filter(|&pid| pid != own)
        .filter_map(|pid| {
            let comm = fs::read_to_string(proc.join(pid.to_string()).join("comm")).ok()?;
            let known = PROFILERS
                .iter()
                .find(|(name, _)| *name == comm.trim_end())?;
            Some(format!("{} (PID {pid})", known.1))
        })
        .collect();
    if found.is_empty() {
        return Check::new(NAME, "none");
    }
    Check::new(NAME, found.join(", ")).warn(
        "each one samples this host, so the overhead adds up; they do not interfere",
        "stop those that are not needed",
    )
}

#[cfg(test)]
mod tests {
    use super::super::Host;
    use super::*;

    #[test]
    fn lists_other_profilers_but_not_itself() {
        let host = Host::new()
            .with_process(1, "systemd", &["/sbin/init"])
            .with_process(7, "profcol", &["/bin/profcol"]);
        let root = host.0.path();
        assert_eq!(check(root, 7).problem, None);
        let other = check(root, 8);
        assert_eq!(other.found, "another profcol (PID 7)");
        assert!(other.problem.is_some());
        let host = host.with_process(9, "otelcol-ebpf-pr", &["/otelcol-ebpf-profiler"]);
        let both = check(host.0.path(), 8);
        assert!(
            both.found.contains("OpenTelemetry eBPF profiler (PID 9)"),
            "{both:?}"
        );
    }
}
