//! Whether a drop decision would stand if more attributes arrived.
//!
//! Metadata arrives late: a rule that drops because a label is missing may keep the same target a second later. A drop
//! is final if it depends only on labels that were present and that no earlier rule could have changed with more
//! metadata.

use crate::labels::Labels;
use crate::rows::LabelRows;
use crate::rule::{Action, Rule};

/// Also `false` if the rules do not drop the rows.
pub fn drop_is_final(rules: &[Rule], rows: &LabelRows) -> bool {
    let mut labels = rows.labels();
    let mut unsure: Vec<&str> = Vec::new();
    for rule in rules {
        let is_sure = is_sure(rule, &labels, &unsure);
        if !rule.apply(&mut labels) {
            return is_sure;
        }
        match rule.spec().action {
            Action::Replace | Action::Lowercase | Action::Uppercase | Action::HashMod
                if !is_sure =>
            {
                match rule.constant_target() {
                    Some(target) => unsure.push(target),
                    None => return false,
                }
            }
            // A late label may be mapped to any name.
            Action::LabelMap => return false,
            _ => {}
        }
    }
    false
}

fn is_sure(rule: &Rule, labels: &Labels<'_>, uncertain: &[&str]) -> bool {
    let is_certain = |name: &str| labels.get(name).is_some() && !uncertain.contains(&name);
    let spec = rule.spec();
    // `keepequal` and `dropequal` also read their target.
    let compares = matches!(spec.action, Action::KeepEqual | Action::DropEqual);
    spec.source_labels.iter().all(|name| is_certain(name))
        && (!compares || is_certain(&spec.target_label))
}
