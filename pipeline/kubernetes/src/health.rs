//! Failures of watching the API: logged once and shown as the component's status.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use profcol_component::{ComponentStatus, Status};

pub struct Health {
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

    pub fn fails(&self, resource: &'static str, problem: String) {
        let mut problems = self.problems.lock();
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

    pub fn is_well(&self, resource: &'static str) {
        let mut problems = self.problems.lock();
        if problems.remove(resource).is_some() {
            tracing::info!(resource, "The watch of the API server has recovered.");
            self.show(&problems);
        }
    }

    fn show(&self, problems: &BTreeMap<&'static str, String>) {
        let all = problems
            .iter()
            .map(|(resource, problem)| format!("failed to read {resource}: {problem}"));
        let all: Vec<String> = all.collect();
        self.status.set(match all.is_empty() {
            true => Status::Ok,
            false => Status::RecoverableError(all.join("; ").into()),
        });
    }
}
