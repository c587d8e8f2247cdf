//! profcol-engine
