//! Attributes as Prometheus-style labels, and rules that change them.
//!
//! ```text
//! attributes ── Rows ── Labels ── Rule, Rule, … ── Labels ── Changes ── attributes
//!               (every name that an attribute has)
//! ```
//!
//! An attribute is one thing under several names ([`names`]): its own, that one as Prometheus writes
//! names, and the one that Parca's agent has for it. What a rule does to one of its names it does to
//! the attribute.
//!
//! This crate knows no sockets, no runtime and no configuration.

mod finality;
mod labels;
mod names;
mod rows;
mod rule;
#[cfg(test)]
mod tests;

pub use finality::drop_is_final;
pub use labels::Labels;
pub use names::{ALIASES, Alias, Place, attribute_of, label_sent_for, sanitized, text};
pub use rows::{Changes, Leftovers, Row, Rows};
pub use rule::{Action, Invalid, Rule, RuleSpec};
