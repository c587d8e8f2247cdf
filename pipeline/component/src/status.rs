//! Component status, for health checks and users.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::Reason;

/// The Collector's component statuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    Starting,
    Ok,
    /// An error that may resolve itself.
    RecoverableError(Reason),
    /// The component cannot recover.
    PermanentError(Reason),
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
    entry: Arc<Mutex<Entry>>,
}

/// The status of one instance.
#[derive(Debug)]
struct Entry {
    visibility: Visibility,
    /// As the component reported it.
    own: Option<Status>,
    /// Why its batches are not delivered.
    undelivered: Option<Reason>,
}

/// Whether the instance owns the entry of its component. During a reload two instances of a component exist.
#[derive(Clone, Copy, Debug)]
enum Visibility {
    /// Not yet.
    Hidden,
    Shown,
    /// No longer.
    Retired,
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
        self.entry(component, Visibility::Shown)
    }

    /// A status that is kept to itself until [`ComponentStatus::show`].
    pub fn hidden_component(&self, component: String) -> ComponentStatus {
        self.entry(component, Visibility::Hidden)
    }

    fn entry(&self, component: String, visibility: Visibility) -> ComponentStatus {
        ComponentStatus {
            board: self.clone(),
            component: component.into(),
            entry: Arc::new(Mutex::new(Entry {
                visibility,
                own: None,
                undelivered: None,
            })),
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
        self.change(|entry| {
            if (entry.own.as_ref()).is_none_or(|now| now.can_become(&status)) {
                entry.own = Some(status);
            }
        });
    }

    /// It has started. An error that it has reported meanwhile stays.
    pub fn started(&self) {
        self.change(|entry| {
            if matches!(entry.own, None | Some(Status::Starting)) {
                entry.own = Some(Status::Ok);
            }
        });
    }

    /// Whether its batches are delivered; a recoverable error if not, unless the component has an error of its own.
    pub fn set_undelivered(&self, reason: Option<Reason>) {
        self.change(|entry| entry.undelivered = reason);
    }

    /// Takes over the component's entry from an earlier instance.
    pub fn show(&self) {
        self.change(|entry| {
            if let Visibility::Hidden = entry.visibility {
                entry.visibility = Visibility::Shown;
            }
        });
    }

    /// From now on the entry belongs to another instance.
    pub fn retire(&self) {
        self.entry.lock().visibility = Visibility::Retired;
    }

    /// The component is no longer configured.
    pub fn remove(&self) {
        self.retire();
        self.board
            .statuses
            .send_if_modified(|statuses| statuses.remove(&*self.component).is_some());
    }

    fn change(&self, change: impl FnOnce(&mut Entry)) {
        let mut entry = self.entry.lock();
        change(&mut entry);
        if let (Visibility::Shown, Some(status)) = (entry.visibility, entry.status()) {
            self.write(&status);
        }
    }

    fn write(&self, status: &Status) {
        let has_changed = self.board.statuses.send_if_modified(|statuses| {
            if statuses.get(&*self.component) == Some(status) {
                return false;
            }
            statuses.insert(self.component.to_string(), status.clone());
            true
        });
        if let (true, Some(observer)) = (has_changed, &self.board.observer) {
            observer(&self.component, status);
        }
    }
}

// === impl Entry ===

impl Entry {
    fn status(&self) -> Option<Status> {
        match (&self.own, &self.undelivered) {
            (Some(Status::Ok), Some(reason)) => Some(Status::RecoverableError(reason.clone())),
            (own, _) => own.clone(),
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
    use super::*;

    #[test]
    fn an_instance_takes_over_the_entry_of_the_one_it_replaces() {
        let board = StatusBoard::default();
        let old = board.component("exporter parca".to_owned());
        old.set(Status::PermanentError("disk is gone".into()));
        let new = board.hidden_component("exporter parca".to_owned());
        new.set(Status::Starting);
        new.set(Status::Ok);
        let shown = || board.snapshot().get("exporter parca").cloned();
        assert_ne!(shown(), Some(Status::Ok));
        old.retire();
        new.show();
        old.set(Status::Stopped);
        assert_eq!(shown(), Some(Status::Ok));
        new.set(Status::Stopping);
        assert_eq!(shown(), Some(Status::Stopping));
        new.remove();
        new.set(Status::Stopped);
        assert_eq!(shown(), None);
    }

    #[test]
    fn an_observer_gets_each_change_once() {
        let changes_seen = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&changes_seen);
        let board = StatusBoard::observed(move |component, status| {
            seen.lock().push((component.to_owned(), status.clone()));
        });
        let exporter = board.component("exporter parca".to_owned());
        let away = Status::RecoverableError("no route".into());
        for status in [&away, &away, &Status::Ok, &Status::Stopped, &away] {
            exporter.set(status.clone());
        }
        let changes = [away, Status::Ok, Status::Stopped];
        let expected = changes.map(|status| ("exporter parca".to_owned(), status));
        assert_eq!(*changes_seen.lock(), expected);
    }

    #[test]
    fn undelivered_data_is_an_error_while_the_component_has_no_other() {
        let board = StatusBoard::default();
        let exporter = board.component("exporter parca".to_owned());
        let shown = || board.snapshot().get("exporter parca").cloned();
        let error = |reason: &str| Some(Status::RecoverableError(reason.into()));
        exporter.set(Status::Starting);
        exporter.started();
        exporter.set_undelivered(Some("no route".into()));
        assert_eq!(shown(), error("no route"));
        exporter.set(Status::RecoverableError("no name".into()));
        exporter.started();
        assert_eq!(shown(), error("no name"));
        exporter.set(Status::Ok);
        assert_eq!(shown(), error("no route"));
        exporter.set_undelivered(None);
        assert_eq!(shown(), Some(Status::Ok));
        exporter.set(Status::Stopping);
        exporter.set_undelivered(Some("no route".into()));
        assert_eq!(shown(), Some(Status::Stopping));
    }

    #[test]
    fn a_permanent_error_is_not_replaced_by_ok() {
        let board = StatusBoard::default();
        let exporter = board.component("exporter debug".to_owned());
        exporter.set(Status::Ok);
        exporter.set(Status::PermanentError("disk is gone".into()));
        exporter.set(Status::Ok);
        assert_eq!(
            board.snapshot()["exporter debug"],
            Status::PermanentError("disk is gone".into())
        );
        exporter.set(Status::Stopping);
        exporter.set(Status::Stopped);
        assert_eq!(board.snapshot()["exporter debug"], Status::Stopped);
    }
}
