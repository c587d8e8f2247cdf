//! The extensions. One directory each, one line in the list.

mod basicauth;
mod bearertokenauth;
mod file_storage;
mod health_check;
mod watched_file;
mod zpages;

use profcol_component::{Entry, Extension, entry};

pub const ALL: &[Entry<dyn Extension>] = &[
    entry::<basicauth::BasicAuth>(),
    entry::<bearertokenauth::BearerTokenAuth>(),
    entry::<file_storage::FileStorage>(),
    entry::<health_check::HealthCheck>(),
    entry::<zpages::ZPages>(),
];
