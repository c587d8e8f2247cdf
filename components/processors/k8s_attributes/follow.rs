//! Following the objects of one kind: a list by pages, then a watch from there on, and so again.
//!
//! A watch that ends is begun where it ended. What the server has forgotten by then is listed anew. Whatever goes wrong
//! is tried again after a while that grows up to a bound: nothing here ends before it is told to.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use kube::core::WatchEvent;
use profcol_component::IntCounter;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::api::{Failure, Query, Server, WATCH_PATIENCE};
use super::directory::Change;
use super::health::Health;
use super::objects::{Object, Page};

/// The pause after the first failure; it doubles with each that follows.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// What a server asks for is granted up to that.
const LONGEST_ASKED_PAUSE: Duration = Duration::from_secs(300);
/// A page that takes longer will not come.
const LIST_PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Follower {
    server: Arc<Server>,
    query: Query,
    /// From where the next watch goes on; none before there was a list.
    version: Option<String>,
    pause: Duration,
    failures: IntCounter,
    health: Arc<Health>,
}

impl Follower {
    pub fn new(
        server: Arc<Server>,
        query: Query,
        failures: IntCounter,
        health: Arc<Health>,
    ) -> Self {
        Self {
            server,
            query,
            version: None,
            pause: SHORTEST_PAUSE,
            failures,
            health,
        }
    }

    /// Follows for ever.
    pub async fn run<T>(mut self, mut on: impl FnMut(Change<T>))
    where
        T: Object + Clone + DeserializeOwned,
    {
        loop {
            let began = Instant::now();
            let step = match &self.version {
                None => self.list(&mut on).await,
                Some(_) => self.watch(&mut on).await,
            };
            match step {
                // A server that ends each watch at once is not asked without a pause, either.
                Ok(()) => sleep(SHORTEST_PAUSE.saturating_sub(began.elapsed())).await,
                Err(failure) => self.endure(failure).await,
            }
        }
    }

    /// Reads everything once, and again whenever somebody asks for what was not there, after `interval` at the earliest.
    pub async fn poll<T>(
        mut self,
        mut on: impl FnMut(Change<T>),
        questions: &Notify,
        interval: Duration,
    ) where
        T: Object + DeserializeOwned,
    {
        loop {
            match self.list(&mut on).await {
                Ok(()) => {
                    sleep(interval).await;
                    questions.notified().await;
                }
                Err(failure) => self.endure(failure).await,
            }
        }
    }

    /// Reads everything once.
    pub async fn list<T>(&mut self, on: &mut impl FnMut(Change<T>)) -> Result<(), Failure>
    where
        T: Object + DeserializeOwned,
    {
        on(Change::Begin);
        let mut next = String::new();
        loop {
            let client = self.server.client().await.map_err(Failure::Other)?;
            let page = client.request::<Page<T>>(self.query.list(&next)?);
            let page = timeout(LIST_PATIENCE, page)
                .await
                .map_err(|_| Failure::Other("the list did not come in time".to_owned()))??;
            page.items.into_iter().map(Change::Put).for_each(&mut *on);
            next = page.metadata.next;
            if next.is_empty() {
                on(Change::Complete);
                self.version = Some(page.metadata.resource_version);
                self.recover();
                return Ok(());
            }
        }
    }

    /// Follows changes until the watch ends.
    async fn watch<T>(&mut self, on: &mut impl FnMut(Change<T>)) -> Result<(), Failure>
    where
        T: Object + Clone + DeserializeOwned,
    {
        let version = self.version.clone().unwrap_or_default();
        let client = self.server.client().await.map_err(Failure::Other)?;
        let watch = client.request_events::<T>(self.query.watch(&version)?);
        let watch = timeout(LIST_PATIENCE, watch)
            .await
            .map_err(|_| Failure::Other("the watch did not begin in time".to_owned()))??;
        let mut events = std::pin::pin!(watch);
        self.recover();
        loop {
            let event = timeout(WATCH_PATIENCE, events.next()).await;
            let Some(event) =
                event.map_err(|_| Failure::Other("the watch went silent".to_owned()))?
            else {
                return Ok(());
            };
            let version = match event? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    let version = object.meta().resource_version.clone();
                    on(Change::Put(object));
                    version
                }
                WatchEvent::Deleted(object) => {
                    let version = object.meta().resource_version.clone();
                    on(Change::Gone(object));
                    version
                }
                WatchEvent::Bookmark(bookmark) => bookmark.metadata.resource_version,
                WatchEvent::Error(status) => return Err(Failure::from_status(&status)),
            };
            if !version.is_empty() {
                self.version = Some(version);
            }
        }
    }

    fn recover(&mut self) {
        self.pause = SHORTEST_PAUSE;
        self.health.is_well(self.query.kind);
    }

    /// Tells what is wrong, and waits.
    async fn endure(&mut self, failure: Failure) {
        self.failures.inc();
        let asked = match failure {
            Failure::Expired => {
                // Nothing is wrong: it went on without us for too long.
                self.version = None;
                return sleep(SHORTEST_PAUSE).await;
            }
            Failure::Unauthorized(_) => {
                self.server.forget_client();
                None
            }
            Failure::Busy(_, wait) => wait.map(|wait| wait.min(LONGEST_ASKED_PAUSE)),
            Failure::Forbidden(_) | Failure::Other(_) => None,
        };
        self.health.fails(self.query.kind, self.explain(&failure));
        let pause = asked.unwrap_or_default().max(self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        sleep(pause).await;
    }

    pub fn explain(&self, failure: &Failure) -> String {
        match failure {
            Failure::Forbidden(_) => format!("{failure}; {}", self.query.rule()),
            Failure::Unauthorized(_) => {
                format!("the API server does not take the credentials: {failure}")
            }
            _ => failure.to_string(),
        }
    }
}
