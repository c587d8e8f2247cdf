//! Shared code of the tests of the whole program.
//!
//! They are integration tests of the package `profcol`, since cargo passes the path of the built program only to those.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

pub mod backend;
pub mod balance;
pub mod calls;
pub mod cgroup;
pub mod faults;
pub mod hosts;
pub mod http2;
pub mod installation;
pub mod judge;
pub mod kafka;
pub mod peers;
pub mod procfs;
pub mod profile;
pub mod programs;
pub mod rig;
pub mod services;
pub mod support;
pub mod systemd;
pub mod toolchain;

use std::time::Duration;

/// Far longer than any operation here takes, so that only a hang fails.
pub const TIMEOUT: Duration = Duration::from_secs(60);
