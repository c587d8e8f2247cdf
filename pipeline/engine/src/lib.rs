//! Runs a configuration: reads the document, connects the components, queues, retries, starts,
//! stops, and tells how it is doing.
//!
//! The engine names no component; the binary hands it a registry.

pub mod document;
mod graph;
mod sender;
mod service;
mod tasks;
pub mod telemetry;

pub use document::Document;
pub use graph::{BuildFailure, ComponentChecks, Graph, ProcessorBalance};
pub use sender::{ExporterBalance, ExporterProgress, NoBatch, batch_of as stored_batch};
pub use service::{Balance, Progress, Pulse, ReceiverBalance, Service, StartFailure, StopReport};
pub use tasks::Failure;
