//! Component status, for health checks and users.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

/// The Collector's component statuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    Starting,
    Ok,
    /// An error that may resolve itself.
    RecoverableError(String),
    /// The component cannot recover.
    PermanentError(String),
    Stopping,
    Stopped,
}

/// The statuses of all components, by `kind id` such as `exporter otlp_grpc/backend`.
#[derive(Clone)]
pub struct StatusBoard {
    statuses: Arc<watch::Sender<BTreeMap<String, Status>>>,
    observer: Option<Observer>,
}

type Observer = Arc<dyn Fn(&str, &Status) + Send + Sync>;

/// One component's entry on the board.
#[derive(Clone, Debug)]
pub struct ComponentStatus {
    board: StatusBoard,
    component: Arc<str>,
}

// === impl StatusBoard ===

impl Default for StatusBoard {
    fn default() -> Self {
        Self {
            statuses: Arc::new(watch::Sender::new(BTreeMap::new())),
            observer: None,
        }
    }
}

impl fmt::Debug for StatusBoard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.statuses.borrow().fmt(f)
    }
}

impl StatusBoard {
    /// A board that calls `observer` synchronously on each change; [`subscribe`](Self::subscribe) may skip intermediate
    /// ones.
    pub fn observed(observer: impl Fn(&str, &Status) + Send + Sync + 'static) -> Self {
        Self {
            observer: Some(Arc::new(observer)),
            ..Self::default()
        }
    }

    pub fn component(&self, component: String) -> ComponentStatus {
        ComponentStatus {
            board: self.clone(),
            component: component.into(),
        }
    }

    pub fn snapshot(&self) -> BTreeMap<String, Status> {
        self.statuses.borrow().clone()
    }

    pub fn subscribe(&self) -> watch::Receiver<BTreeMap<String, Status>> {
        self.statuses.subscribe()
    }
}

// === impl ComponentStatus ===

impl ComponentStatus {
    pub fn set(&self, status: Status) {
        let has_changed = self.board.statuses.send_if_modified(|statuses| {
            let previous = statuses.get(&*self.component);
            if previous == Some(&status) || previous.is_some_and(|now| !now.can_become(&status)) {
                return false;
            }
            statuses.insert(self.component.to_string(), status.clone());
            true
        });
        if let (true, Some(observer)) = (has_changed, &self.board.observer) {
            observer(&self.component, &status);
        }
    }
}

impl Status {
    /// A permanent error persists until the component stops; `Stopped` is final.
    fn can_become(&self, next: &Status) -> bool {
        match self {
            Status::PermanentError(_) => matches!(next, Status::Stopping),
            Status::Stopping => matches!(next, Status::Stopped | Status::PermanentError(_)),
            Status::Stopped => matches!(next, Status::Starting),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn an_observer_gets_each_change_once() {
        let changes_seen = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&changes_seen);
        let board = StatusBoard::observed(move |component, status| {
            seen.lock().push((component.to_owned(), status.clone()));
        });
        let exporter = board.component("exporter parca".to_owned());
        let away = Status::RecoverableError("no route".to_owned());
        for status in [&away, &away, &Status::Ok, &Status::Stopped, &away] {
            exporter.set(status.clone());
        }
        let changes = [away, Status::Ok, Status::Stopped];
        let expected = changes.map(|status| ("exporter parca".to_owned(), status));
        assert_eq!(*changes_seen.lock(), expected);
    }

    #[test]
    fn a_permanent_error_is_not_replaced_by_ok() {
        let board = StatusBoard::default();
        let exporter = board.component("exporter debug".to_owned());
        exporter.set(Status::Ok);
        exporter.set(Status::PermanentError("disk is gone".to_owned()));
        exporter.set(Status::Ok);
        assert_eq!(
            board.snapshot()["exporter debug"],
            Status::PermanentError("disk is gone".to_owned())
        );
        exporter.set(Status::Stopping);
        exporter.set(Status::Stopped);
        assert_eq!(board.snapshot()["exporter debug"], Status::Stopped);
    }
}
