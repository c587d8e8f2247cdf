//! The profile model.
