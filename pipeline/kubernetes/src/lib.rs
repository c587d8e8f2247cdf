//! What the components that query Kubernetes share: access to the API server, and following the objects of one kind.
//!
//! ```text
//! API server ──list, watch──► Follower ──Change──► the component
//! ```
//!
//! A component says which objects it follows ([`Query`]) and what it reads of them ([`Object`]).

mod access;
mod api;
mod check;
mod follow;
mod health;
mod objects;
#[cfg(feature = "testkit")]
pub mod testkit;

pub use access::{Access, AuthType, ClientError, Kubelet, Server};
pub use api::{ApiError, Query, Resource, Selection};
pub use check::{CheckImpact, check_rights};
pub use follow::{Change, Counters, Follower};
pub use health::Health;
pub use objects::{Meta, MetaOnly, Object, Owner, Page, PageMeta, Read, StringMap, or_default};
