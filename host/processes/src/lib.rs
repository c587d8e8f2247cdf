//! What this host tells of its processes.
//!
//! The path of a cgroup names the container ([`container`]), the pod ([`pod_uid`]) and systemd's units ([`Units`]); `/proc`
//! has the rest ([`Described`]), and the executable says how it was built ([`BuildInfo`]).
//!
//! Two kinds of code are named by this host alone, while it runs: the kernel's ([`KernelNames`]), and what runtimes
//! generate ([`JitProcesses`]).
//!
//! A process may end between any two looks at it: what cannot be read is absent, never an error.

mod build_info;
mod container;
mod generated;
mod host;
mod kernel;
mod mapped;
mod pod;
mod process;
mod systemd;
mod toolchain;

pub use build_info::{BuildInfo, FileId, open_executable};
pub use container::{Container, container, is_container_id, parents_and_names};
pub use generated::{GeneratedCode, JitNames, JitProcesses};
pub use host::{Host, Users};
pub use kernel::{KernelFrame, KernelNames};
pub use mapped::{MappedFile, mapped_code};
pub use pod::pod_uid;
pub use process::{
    Described, Wanted, arguments, cgroup_in, executable_path, milliseconds, pids, pids_in,
    timestamp,
};
pub use systemd::Units;
pub use toolchain::runtime;
