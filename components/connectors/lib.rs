//! The connectors. One directory each, one line in the list.

mod failover;
mod forward;
mod round_robin;
mod routing;

use profcol_component::{Connector, Entry, entry};

pub const ALL: &[Entry<dyn Connector>] = &[
    entry::<failover::Failover>(),
    entry::<forward::Forward>(),
    entry::<round_robin::RoundRobin>(),
    entry::<routing::Routing>(),
];
