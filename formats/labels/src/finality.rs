//! Whether a drop would stay one if attributes were added that are not known yet.
//!
//! Metadata comes late: what a rule drops since a label is missing may be kept a second later. A
//! drop is final where it was decided by labels that were there, and no earlier rule could have
//! changed those had it known more.

use crate::labels::Labels;
use crate::rows::Rows;
use crate::rule::{Action, Rule};

/// `false` also where the rules do not drop it.
pub fn drop_is_final(rules: &[Rule], rows: &Rows) -> bool {
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
            // A label that comes late may be mapped to any name.
            Action::LabelMap => return false,
            _ => {}
        }
    }
    false
}

fn is_sure(rule: &Rule, labels: &Labels<'_>, unsure: &[&str]) -> bool {
    let is_known = |name: &str| labels.get(name).is_some() && !unsure.contains(&name);
    let spec = rule.spec();
    // These two read their target, too.
    let compares = matches!(spec.action, Action::KeepEqual | Action::DropEqual);
    spec.source_labels.iter().all(|name| is_known(name))
        && (!compares || is_known(&spec.target_label))
}
