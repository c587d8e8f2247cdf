//! Attributes as Prometheus-style labels, and relabel rules.
//!
//! ```text
//! attributes ── LabelRows ── Labels ── Rule, Rule, … ── Labels ── Changes ── attributes
//!               (every name that an attribute has)
//! ```
//!
//! An attribute has several label names ([`names`]): its own key, the key in Prometheus' syntax, and Parca Agent's name
//! for it. A rule that changes any of them changes the attribute.
//!
//! [`RelabelConfig`] is the configuration of the rules.

mod changes;
mod config;
mod finality;
mod labels;
mod names;
mod rows;
mod rule;
#[cfg(test)]
mod tests;

pub use changes::{Changes, Leftovers};
pub use config::{RelabelConfig, RulesError};
pub use finality::drop_is_final;
pub use labels::Labels;
pub use names::{ALIASES, Alias, LabelSource, attribute_of, label_sent_for, sanitized, text};
pub use rows::{LabelRows, Row};
pub use rule::{Action, Invalid, Rule, RuleSpec};
