//! The contracts between the engine and the components.
//!
//! Component crates depend on this crate and the profile model but not on the engine, so changes to queues or telemetry
//! do not rebuild them.
//!
//! ```text
//! Receiver ──Output::push──► Processor ──Consumer::consume──► engine's sender ──► Exporter
//!          ◄────────────────────────── Answer ──────────────────────────────────┘
//! ```
//!
//! A pushed batch is answered: accepted, retry later, or refused permanently. To learn the outcome of an accepted
//! batch, attach a [`Finalizer`]. Symbols not resolved yet when a batch is passed on are available through its
//! [`DeferredSymbols`].

mod accumulator;
mod answer;
mod batch;
mod batch_id;
mod capabilities;
mod check;
mod deferred_symbols;
mod delivery;
mod destinations;
mod drop_feedback;
mod drop_reasons;
mod executables;
pub mod files;
mod finalizer;
mod handles;
mod meter;
mod reason;
mod recent_log;
mod registry;
mod service_info;
mod shared;
mod status;
mod stop;
mod tap;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
mod traits;

pub use accumulator::{Accumulator, Limits, Ready, Sizer};
pub use answer::{Answer, Delivered, Refusal, Undelivered};
pub use batch::{Batch, Metadata, Source};
pub use batch_id::BatchId;
pub use capabilities::Capabilities;
pub use check::{Check, Listening, Problem, Severity, path_check};
pub use deferred_symbols::{
    CodeAddress, DeferredSymbol, DeferredSymbols, ExecutableAddress, SymbolFrame, SymbolLookup,
    SymbolSource,
};
pub use delivery::{
    Delivery, DeliverySettings, PartitionSettings, QueueBatchSettings, QueueSettings, RetrySettings,
};
pub use destinations::Destinations;
pub use drop_feedback::{
    DropExpiry, DropFeedback, DropReporter, DropSubscription, DroppedProcess, SampledProcess,
};
pub use drop_reasons::ProcessDropReason;
pub use executables::{BuildId, Executable, Executables, Subscription};
pub use finalizer::{Attempt, Finalizer, Finalizers, Outcome};
pub use handles::Handles;
pub use meter::{Meter, MeterError, Series};
pub use prometheus::{Gauge, Histogram, IntCounter};
pub use reason::Reason;
pub use recent_log::{LogLines, RecentLog};
pub use registry::{
    AnyConfig, BuildContext, BuildError, Entry, Extensions, Factory, ForeignComponent, InstanceId,
    Kind, Registry, Stability, entry,
};
pub use service_info::{CurrentService, PipelineInfo, SelfTelemetry, ServiceInfo};
pub use shared::Shared;
pub use status::{ComponentStatus, Status, StatusBoard};
pub use stop::Stop;
pub use tap::{
    MAX_SUBSCRIPTIONS, Passed, Side, SubscribeError, Tap, TapPoint, TapSubscription, Taps,
};
pub use traits::{
    Connector, Consumer, Exporter, Extension, Output, Pipelines, Processor, Receiver,
    ReceiverTotals, RunError, SourceCounts, StartError,
};
