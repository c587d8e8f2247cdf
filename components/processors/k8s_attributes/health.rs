//! What of the API cannot be read at the moment, told once and shown on the status board.

use std::collections::BTreeMap;
use std::sync::Mutex;

use profcol_component::{ComponentStatus, Status};

use super::records::Kind;
use crate::shared::locks::lock;

pub(super) struct Health {
    status: ComponentStatus,
    problems: Mutex<BTreeMap<&'static str, String>>,
}

impl Health {
    pub fn new(status: ComponentStatus) -> Self {
        Self {
            status,
            problems: Mutex::default(),
        }
    }

    pub fn fails(&self, kind: Kind, problem: String) {
        let resource = kind.plural();
        let mut problems = lock(&self.problems);
        if problems.get(resource) == Some(&problem) {
            return;
        }
        tracing::warn!(
            resource,
            error = %problem,
            "Failed to watch objects of the API server. Keeping the cached ones and retrying."
        );
        problems.insert(resource, problem);
        self.show(&problems);
    }

    pub fn is_well(&self, kind: Kind) {
        let resource = kind.plural();
        let mut problems = lock(&self.problems);
        if problems.remove(resource).is_some() {
            tracing::info!(resource, "The watch of the API server has recovered.");
            self.show(&problems);
        }
    }

    fn show(&self, problems: &BTreeMap<&'static str, String>) {
        let all = problems
            .iter()
            .map(|(resource, problem)| format!("cannot read {resource}: {problem}"));
        let all: Vec<String> = all.collect();
        self.status.set(match all.is_empty() {
            true => Status::Ok,
            false => Status::RecoverableError(all.join("; ")),
        });
    }
}
