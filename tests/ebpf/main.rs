//! The eBPF receiver on real programs: each has a known call chain, which the exported profile must show.
//!
//! Needs root and a kernel that permits BPF programs; otherwise the tests report a skip, which fails in CI.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod balance;
mod beam;
mod built_in;
mod by_events;
mod calls;
mod chains;
mod choice;
mod clock;
mod completeness;
mod contexts;
mod crowd;
mod distribution;
mod doctor;
mod dotnet;
mod examples;
mod files;
mod golang;
mod host;
mod identity;
mod java;
mod javascript;
mod jit;
mod lisp;
mod luajit;
mod mixed;
mod perl;
mod php;
mod privileges;
mod python;
mod record;
mod releases;
mod ruby;
mod snapshot;
mod storm;
mod table_reader;
mod top;
mod unknown_versions;
