//! What profcol costs, beside what the obvious way and the real peers cost on the same input. Quote ratios within one
//! run: absolute times belong to the machine.
//!
//! * `forward` (a program): whole processes, OTLP gRPC in, OTLP gRPC out;
//! * `ebpf` (a program): what the eBPF receiver costs the host that it profiles;
//! * `queue` (a program): a sending queue in memory, and stored with each `fsync`;
//! * `idle` (a program): memory and wake-ups of a running process;
//! * `parca` (a bench): bytes and time of a sample in each of Parca's schemas, beside what its agent sent;
//! * this library: what they share, and the obvious way to merge, as the yardstick of the micro benches.

pub mod bodies;
pub mod obvious;
pub mod procfs;
