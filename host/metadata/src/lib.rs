//! Resource attributes of local processes: the process itself, its container and its systemd unit.
//!
//! Processors add them to profiles in the pipeline, and `profcol processes` prints them.
//!
//! ```text
//! process    /proc, its executable, its environment
//! container  the cgroup's path; Docker, containerd or a CRI runtime for names, images and labels
//! systemd    the cgroup's path; the files that systemd writes for the journal
//! ```

pub mod attributes;
mod cache;
pub mod container;
mod image;
mod local_process;
pub mod otel_resource_attributes;
pub mod process;
mod run_blocking;
pub mod systemd;

pub use cache::BoundedCache;
pub use image::Image;
pub use local_process::{LocalProcess, names_this_host};
pub use run_blocking::run_blocking;
