//! Benchmarks of profcol, compared with a naive implementation and real peers on the same input. Quote ratios
//! within one run: absolute times depend on the machine.
//!
//! * `forward` (a program): whole processes, OTLP gRPC in, OTLP gRPC out;
//! * `ebpf` (a program): the cost of the eBPF receiver for the profiled host;
//! * `queue` (a program): a sending queue in memory, and on disk with each `fsync` setting;
//! * `history` (a program): memory and CPU of what `live_view` keeps;
//! * `history_add` (a bench): time per sample of what `live_view` keeps;
//! * `reload` (a program): the longest gaps in answering and sampling while the configuration is reloaded;
//! * `idle` (a program): memory and wake-ups of a running process;
//! * `parca` (a bench): bytes and time per sample in each of Parca's schemas, compared with its agent;
//! * this library: common code, and a naive merge implementation as the baseline of the micro benchmarks.

pub mod bodies;
pub mod naive;
