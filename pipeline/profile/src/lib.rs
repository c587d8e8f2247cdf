//! The profile model: what flows through every pipeline.
//!
//! It follows OTLP's `ProfilesDictionary`: strings, functions, mappings, locations, stacks, attributes and links are
//! deduplicated tables, and samples are columns of indices into them.
//!
//! ```text
//! Profiles ── cheap handle: clone = one reference count; wire bytes as received
//!   └ Model                  decoded on first use
//!       ├ Dictionary          tables, shared by all resources of the batch
//!       │   strings  functions  mappings  locations  stacks  attributes  links
//!       └ ResourceProfiles*   one process or container
//!           └ ScopeProfiles*  instrumentation scope
//!               └ Profile*    one sample type over one period
//!                   └ Samples columns: stack, attributes, link, values, timestamps
//! ```
//!
//! Row 0 of every table is its zero value and means "not set". This crate has no sockets, runtime or configuration.

mod check;
mod dictionary;
mod gc;
mod heap;
mod index;
mod intern;
mod lines;
mod lists;
mod merge;
mod model;
mod opened;
mod profiles;
pub mod proto;
mod read_failures;
mod samples;
mod select;
mod shared_resource;
mod split;
mod strings;
#[cfg(feature = "testkit")]
pub mod testkit;
mod value;
mod wire;

pub use check::{CheckOptions, Nonconformance, check};
pub use dictionary::{
    Attribute, AttributeIdx, AttributeRef, Dictionary, Function, FunctionIdx, Line, Link, LinkIdx,
    Location, LocationIdx, LocationRef, Locations, Mapping, MappingIdx, MappingRef, Mappings,
    Stack, StackIdx, Stacks, Table,
};
pub use gc::gc;
pub use heap::attributes_size;
pub use index::{Idx, StringIdx};
pub use intern::Interner;
pub use lines::NamedLine;
pub use lists::Lists;
pub use merge::{Merger, merge};
pub use model::{
    EntityRef, Model, OriginalPayload, Profile, Resource, ResourceProfiles, Scope, ScopeProfiles,
    ValueType,
};
pub use profiles::{CompressedWire, Decompress, Profiles, Received, Validation};
pub use proto::WireError;
pub use read_failures::read_failures;
pub use samples::{SampleRef, Samples};
pub use shared_resource::SharedResource;
pub use split::{Bound, Pieces, split};
pub use strings::StringTable;
pub use value::{Attributes, KeyValue, Value, hex};
pub use wire::{Counts, Invalid, Reason};
