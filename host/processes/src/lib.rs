//! The processes of this host.
//!
//! A cgroup path yields the container ([`container`]), the pod ([`pod_uid`]) and systemd's units ([`Units`]); `/proc`
//! provides the rest ([`ProcessDescription`]), and the executable its build information ([`BuildInfo`]).
//!
//! A process may exit between any two reads: unreadable data is absent, never an error.

mod build_info;
mod container;
mod host;
mod mapped;
mod pod;
mod process;
mod process_context;
mod systemd;
mod toolchain;

pub use build_info::{BuildInfo, FileVersion, open_executable};
pub use container::{Container, container, is_container_id, parents_and_names};
pub use host::{Host, Users, has_own_pid_namespace};
pub use mapped::mapped_code;
pub use pod::pod_uid;
pub use process::{
    ProcessDescription, ReadOptions, arguments, cgroup_in, executable_path, executable_path_in,
    milliseconds, pids, pids_in, timestamp,
};
pub use process_context::{ContextError, attribute_keys, process_context};
pub use profcol_elf::Mapping;
pub use systemd::Units;
pub use toolchain::runtime;
