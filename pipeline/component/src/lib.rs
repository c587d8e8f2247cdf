//! The contracts between the engine and the components.
//!
//! A component crate needs this crate, the profile model and nothing of the engine, so work on
//! queues, reloads or telemetry rebuilds no component.
//!
//! ```text
//! Receiver ──Output::push──► Processor ──Consumer::consume──► engine's sender ──► Exporter
//!          ◄────────────────────────── Answer ──────────────────────────────────┘
//! ```
//!
//! A batch is pushed and answered: accepted, retry later, or refused for ever. Who wants to know
//! what became of it after it was accepted attaches a [`Finalizer`]. Names of code that are not there yet
//! when a batch is passed on are asked for by its [`DeferredSymbols`].

mod accumulator;
mod answer;
mod batch;
mod capabilities;
mod check;
mod deferred_symbols;
mod delivery;
mod drop_feedback;
mod executables;
pub mod files;
mod finalizer;
mod meter;
mod recent_log;
mod registry;
mod service_info;
mod status;
mod stop;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
mod traits;

pub use accumulator::{Accumulator, Limits, Ready, Sizer};
pub use answer::{Answer, Delivered, Refusal};
pub use batch::{Batch, BatchId, Metadata, Source};
pub use capabilities::Capabilities;
pub use check::{Check, Problem, Severity};
pub use deferred_symbols::{
    Code, CodeAddress, DeferredSymbol, DeferredSymbols, SymbolFrame, SymbolLookup, SymbolSource,
};
pub use delivery::{
    Delivery, DeliverySettings, PartitionSettings, QueueBatchSettings, QueueSettings, RetrySettings,
};
pub use drop_feedback::{
    DropExpiry, DropFeedback, DropReporter, DropSubscription, DroppedProcess, SampledProcess,
};
pub use executables::{BuildId, Executable, Executables, Subscription};
pub use finalizer::{Attempt, Finalizer, Finalizers, Outcome};
pub use meter::{Meter, MeterError, Series};
pub use prometheus::{Gauge, Histogram, IntCounter};
pub use recent_log::{LogLines, RecentLog};
pub use registry::{
    AnyConfig, BuildContext, BuildError, Entry, Factory, ForeignComponent, Handles, Kind, Registry,
    Stability, entry, extension,
};
pub use service_info::{PipelineInfo, SelfTelemetry, ServiceInfo};
pub use status::{ComponentStatus, Status, StatusBoard};
pub use stop::Stop;
pub use traits::{
    Consumer, Exporter, Extension, Output, Processor, Receiver, ReceiverTotals, RunError,
    SourceCounts, StartError,
};
