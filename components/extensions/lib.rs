//! The extensions: what runs beside the pipelines. One folder each, one line in the list.

use profcol_component::{Entry, Extension};

pub const ALL: &[Entry<dyn Extension>] = &[];
