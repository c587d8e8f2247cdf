//! The receivers of profcol: one folder per component, registered by one line.
