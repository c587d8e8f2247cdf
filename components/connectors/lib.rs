//! The connectors. One folder each, one line in the list.

mod forward;

use profcol_component::{Connector, Entry, entry};

pub const ALL: &[Entry<dyn Connector>] = &[entry::<forward::Forward>()];
