//! The attributes of processes and samples.

use profcol_ebpf_loader::{Sample, part};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! attributes {
    ($($(#[doc = $doc:literal])+ $field:ident: $key:literal, $default:literal;)*) => {
        /// Attributes by their names in OpenTelemetry's semantic conventions: `true` enables one, `false` disables it.
        #[derive(Clone, Debug, Deserialize, JsonSchema, Serialize)]
        #[serde(default)]
        pub struct Attributes {
            $($(#[doc = $doc])+ #[serde(rename = $key)] pub $field: bool,)*
        }

        impl Default for Attributes {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        /// The attribute keys.
        pub mod key {
            $(#[allow(non_upper_case_globals, reason = "named as its switch")] pub const $field: &str = $key;)*
        }
    };
}

attributes! {
    /// The host name.
    host_name: "host.name", true;
    /// The PID on the host.
    pid: "process.pid", true;
    /// The file name of the executable, or the `comm` of the process if it has none.
    executable_name: "process.executable.name", true;
    /// The `comm` of the process, which it may change.
    comm: "process.comm", true;
    /// The executable's path in the process's mount namespace.
    executable_path: "process.executable.path", true;
    /// The GNU build ID of the executable.
    executable_build_id: "process.executable.build_id.gnu", true;
    /// Its command-line arguments, up to 4 KiB. They may contain secrets, so they are disabled by default.
    command_args: "process.command_args", false;
    /// The PID of its parent on the host.
    parent_pid: "process.parent_pid", true;
    /// The name of its user, or the UID if the host has no name for it.
    owner: "process.owner", true;
    /// Its creation time, with millisecond resolution.
    creation_time: "process.creation.time", true;
    /// Its PID in its own PID namespace, if that is not the host's.
    vpid: "process.vpid", true;
    /// Its cgroup path from the root of the host's hierarchy: the deepest one if there are several hierarchies.
    cgroup: "process.linux.cgroup", true;
    /// Derived from the cgroup path, for Docker, containerd, CRI-O, Podman, Kubernetes and LXC.
    container_id: "container.id", true;
    /// The thread ID on the host.
    thread_id: "thread.id", true;
    /// The thread name at the time of the sample.
    thread_name: "thread.name", true;
    /// The CPU of the sample.
    cpu: "cpu.logical_number", true;
    /// The ID of the goroutine that the thread runs, in Go programs.
    goroutine: "go.goroutine.id", true;
    /// The labels that the program gave to the goroutine or the thread, each as `process.context.label.<key>`.
    labels: "process.context.label", true;
}

impl Attributes {
    /// What to read of the contexts of threads.
    pub fn context_parts(&self) -> u32 {
        let of = |is_on: bool, part: u32| if is_on { part } else { 0 };
        of(self.goroutine, part::GOROUTINE) | of(self.labels, part::LABELS) | part::LINK
    }

    /// Clears disabled attributes, so that samples that differ only in them are merged.
    pub fn strip(&self, sample: &mut Sample) {
        if !self.thread_id {
            sample.thread = 0;
        }
        if !self.thread_name {
            sample.thread_name = [0; 16];
        }
        if !self.cpu {
            sample.cpu = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_disabled_attributes() {
        let taken = || Sample {
            thread: 7,
            thread_name: [b'x'; 16],
            cpu: 1,
            ..Sample::default()
        };
        for (off, expected) in [
            ("", (7, [b'x'; 16], 1)),
            (key::thread_id, (0, [b'x'; 16], 1)),
            (key::thread_name, (7, [0; 16], 1)),
            (key::cpu, (7, [b'x'; 16], 0)),
        ] {
            let mut switches = serde_json::Map::new();
            if !off.is_empty() {
                switches.insert(off.into(), false.into());
            }
            let attributes: Attributes =
                serde_json::from_value(switches.into()).expect("valid attributes");
            let mut sample = taken();
            attributes.strip(&mut sample);
            let stripped = (sample.thread, sample.thread_name, sample.cpu);
            assert_eq!(stripped, expected, "without {off:?}");
        }
    }
}
