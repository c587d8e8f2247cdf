//! The extensions of profcol: one folder per component, registered by one line.
