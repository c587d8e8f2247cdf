//! Whether all components are healthy, and since when.

use std::collections::BTreeMap;
use std::time::Instant;

use jiff::Timestamp;
use parking_lot::Mutex;
use profcol_component::{Status, StatusBoard};
use profcol_config::Duration;
use serde::Serialize;

pub(super) struct Health {
    board: StatusBoard,
    since: Mutex<Option<Since>>,
}

#[derive(Clone, Copy)]
struct Since {
    time: Timestamp,
    instant: Instant,
}

/// The Collector's response.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    #[serde(skip)]
    pub(super) healthy: bool,
    status: &'static str,
    up_since: String,
    uptime: String,
}

/// Go's zero time.
const NEVER: &str = "0001-01-01T00:00:00Z";

impl Health {
    pub(super) fn new(board: StatusBoard) -> Self {
        Self {
            board,
            since: Mutex::new(None),
        }
    }

    /// Records the time of each change to healthy.
    pub(super) async fn follow(&self) {
        let mut changes = self.board.subscribe();
        self.report();
        while changes.changed().await.is_ok() {
            self.report();
        }
    }

    pub(super) fn report(&self) -> Report {
        let mut since = self.since.lock();
        if !is_healthy(&self.board.snapshot()) {
            *since = None;
            return Report {
                healthy: false,
                status: "Server not available",
                up_since: NEVER.to_owned(),
                uptime: String::new(),
            };
        }
        let since = since.get_or_insert_with(|| Since {
            time: Timestamp::now(),
            instant: Instant::now(),
        });
        Report {
            healthy: true,
            status: "Server available",
            up_since: since.time.to_string(),
            uptime: Duration::from(since.instant.elapsed()).to_string(),
        }
    }
}

/// Recoverable errors, such as a full queue, must not cause a restart.
fn is_healthy(statuses: &BTreeMap<String, Status>) -> bool {
    let works = |status: &Status| matches!(status, Status::Ok | Status::RecoverableError(_));
    statuses.values().all(works)
}
