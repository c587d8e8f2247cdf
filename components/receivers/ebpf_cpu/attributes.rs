//! What is said of processes and samples beside their stacks.

use profcol_ebpf_loader::Sample;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! attributes {
    ($($(#[doc = $doc:literal])+ $field:ident: $key:literal, $default:literal;)*) => {
        /// Attributes by their names in OpenTelemetry's semantic conventions: `false` switches one off, `true` on.
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

        /// Their names.
        pub mod key {
            $(#[allow(non_upper_case_globals, reason = "named as its switch")] pub const $field: &str = $key;)*
        }
    };
}

attributes! {
    /// This host's name.
    host_name: "host.name", true;
    /// The process's number on the host.
    pid: "process.pid", true;
    /// The last part of the executable's path, or the kernel's name of the process where there is none.
    executable_name: "process.executable.name", true;
    /// The kernel's name of the process, which it may have chosen itself.
    comm: "process.comm", true;
    /// The executable's path in the process's mount namespace.
    executable_path: "process.executable.path", true;
    /// The executable's GNU build id.
    executable_build_id: "process.executable.build_id.gnu", true;
    /// Its arguments, up to 4 KiB of them. They may hold secrets, hence off.
    command_args: "process.command_args", false;
    /// The number of its parent on the host.
    parent_pid: "process.parent_pid", true;
    /// The name of its user, or the number where this host has no name for it.
    owner: "process.owner", true;
    /// When it was created, to the millisecond.
    creation_time: "process.creation.time", true;
    /// Its number in its own PID namespace, where that is another one.
    vpid: "process.vpid", true;
    /// The path of its cgroup, from the root of the host's hierarchy: the deepest one, where there are several hierarchies.
    cgroup: "process.linux.cgroup", true;
    /// As the path of the cgroup tells it: Docker, containerd, CRI-O, Podman, Kubernetes and LXC.
    container_id: "container.id", true;
    /// The thread's number on the host.
    thread_id: "thread.id", true;
    /// The thread's name at the sample.
    thread_name: "thread.name", true;
    /// The CPU that the sample was taken on.
    cpu: "cpu.logical_number", true;
}

impl Attributes {
    /// Takes out what is not told, so that samples that differ in it alone are one.
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
    fn takes_out_what_is_switched_off() {
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
            let attributes: Attributes = serde_json::from_value(switches.into()).expect("is right");
            let mut sample = taken();
            attributes.strip(&mut sample);
            let left = (sample.thread, sample.thread_name, sample.cpu);
            assert_eq!(left, expected, "without {off:?}");
        }
    }
}
