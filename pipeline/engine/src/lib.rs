//! Runs a configuration: decodes the document, connects components, queues and retries, starts and stops, and exposes
//! telemetry.
//!
//! The engine knows no concrete component; the binary passes it a registry.

pub mod document;
mod graph;
mod resends;
mod sender;
mod service;
#[cfg(test)]
mod simulation;
mod tasks;
pub mod telemetry;

pub use document::Document;
pub use graph::{BuildFailure, ComponentChecks, Graph, ProcessorBalance};
pub use sender::{ExporterBalance, ExporterProgress, InvalidRecord, batch_of as stored_batch};
pub use service::{
    Balance, Progress, ProgressReader, ReceiverBalance, ReloadFailure, Reloaded, Service,
    StartFailure, StopReport,
};
pub use tasks::{TaskError, TaskFailure};
