//! The processors of profcol: one folder per component, registered by one line.
