//! profcol-component
