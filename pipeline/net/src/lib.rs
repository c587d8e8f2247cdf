//! profcol-net
