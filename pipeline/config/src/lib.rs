//! profcol-config
