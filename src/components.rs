//! The one place where the component lists meet.

use profcol_component::Registry;

use crate::other_distributions::FOREIGN_COMPONENTS;

pub const REGISTRY: Registry = Registry {
    receivers: profcol_receivers::ALL,
    processors: profcol_processors::ALL,
    exporters: profcol_exporters::ALL,
    connectors: profcol_connectors::ALL,
    extensions: profcol_extensions::ALL,
    foreign: FOREIGN_COMPONENTS,
};
