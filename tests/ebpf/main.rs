//! The eBPF receiver on real programs: each has a chain of calls that is known, and the profile that leaves an
//! exporter has to show it.
//!
//! Needs root and a kernel that lets it load BPF programs; without these a test says so and skips itself, which in CI
//! is a failure.

#![allow(
    clippy::unwrap_used,
    reason = "what is unwrapped wrongly fails the test, as it should"
)]

#[path = "../backend/mod.rs"]
mod backend;
mod balance;
mod built_in;
mod by_events;
mod calls;
mod chains;
mod choice;
mod clock;
mod completeness;
mod distribution;
mod doctor;
mod examples;
mod host;
mod identity;
mod java;
mod javascript;
mod jit;
mod judge;
mod lisp;
#[path = "../peers/mod.rs"]
mod peers;
mod php;
mod privileges;
mod profile;
mod programs;
mod python;
mod record;
mod ruby;
mod snapshot;
mod storm;
#[path = "../support/mod.rs"]
mod support;
mod toolchain;
mod top;
