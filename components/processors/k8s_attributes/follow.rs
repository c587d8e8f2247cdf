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
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::api::{ApiError, Query, Server, WATCH_TIMEOUT};
use super::directory::Change;
use super::health::Health;
use super::objects::{Object, Page};

/// The pause after the first failure; it doubles with each that follows.
const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// What a server asks for is granted up to that.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);
/// A page that takes longer will not come.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) struct Follower {
    server: Arc<Server>,
    query: Query,
    /// From where the next watch goes on; none before there was a list.
    version: Option<String>,
    pause: Duration,
    counters: Counters,
    /// Whether it was said that there are objects that cannot be read.
    told_of_unreadable: bool,
    health: Arc<Health>,
}

/// What goes wrong with one kind.
pub(super) struct Counters {
    pub failures: IntCounter,
    pub unreadable: IntCounter,
}

impl Follower {
    pub fn new(server: Arc<Server>, query: Query, counters: Counters, health: Arc<Health>) -> Self {
        Self {
            server,
            query,
            version: None,
            pause: MIN_BACKOFF,
            counters,
            told_of_unreadable: false,
            health,
        }
    }

    /// Follows for ever.
    pub async fn run<T>(mut self, mut on: impl FnMut(Change<T>))
    where
        T: Object + DeserializeOwned,
    {
        loop {
            let began = Instant::now();
            let step = match &self.version {
                None => self.list(&mut on).await,
                Some(_) => self.watch(&mut on).await,
            };
            match step {
                // A server that ends each watch at once is not asked without a pause, either.
                Ok(()) => sleep(MIN_BACKOFF.saturating_sub(began.elapsed())).await,
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
                    self.pause = MIN_BACKOFF;
                    sleep(interval).await;
                    questions.notified().await;
                }
                Err(failure) => self.endure(failure).await,
            }
        }
    }

    /// Reads everything once.
    pub async fn list<T>(&mut self, on: &mut impl FnMut(Change<T>)) -> Result<(), ApiError>
    where
        T: Object + DeserializeOwned,
    {
        on(Change::Begin);
        let mut next = String::new();
        loop {
            let client = self.server.client().await.map_err(ApiError::Other)?;
            let page = client.request::<Page<T>>(self.query.list(&next)?);
            let page = timeout(LIST_TIMEOUT, page)
                .await
                .map_err(|_| ApiError::Other("the list did not come in time".to_owned()))??;
            for object in page.items {
                if let Some(object) = self.readable(object.0) {
                    on(Change::Put(object));
                }
            }
            next = page.metadata.next;
            if next.is_empty() {
                on(Change::Complete);
                self.version = Some(page.metadata.resource_version);
                self.health.is_well(self.query.kind);
                return Ok(());
            }
        }
    }

    /// Follows changes until the watch ends.
    async fn watch<T>(&mut self, on: &mut impl FnMut(Change<T>)) -> Result<(), ApiError>
    where
        T: Object + DeserializeOwned,
    {
        let version = self.version.clone().unwrap_or_default();
        let client = self.server.client().await.map_err(ApiError::Other)?;
        let watch = client.request_events::<Value>(self.query.watch(&version)?);
        let watch = timeout(LIST_TIMEOUT, watch)
            .await
            .map_err(|_| ApiError::Other("the watch did not begin in time".to_owned()))??;
        let mut events = std::pin::pin!(watch);
        self.health.is_well(self.query.kind);
        loop {
            let event = timeout(WATCH_TIMEOUT, events.next()).await;
            let Some(event) =
                event.map_err(|_| ApiError::Other("the watch went silent".to_owned()))?
            else {
                return Ok(());
            };
            let event = event?;
            if !matches!(event, WatchEvent::Error(_)) {
                self.pause = MIN_BACKOFF;
            }
            let version = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    let Some(object) = self.readable::<T>(serde_json::from_value(object)) else {
                        continue;
                    };
                    let version = object.meta().resource_version.clone();
                    on(Change::Put(object));
                    version
                }
                WatchEvent::Deleted(object) => {
                    let Some(object) = self.readable::<T>(serde_json::from_value(object)) else {
                        continue;
                    };
                    let version = object.meta().resource_version.clone();
                    on(Change::Gone(object));
                    version
                }
                WatchEvent::Bookmark(bookmark) => bookmark.metadata.resource_version,
                WatchEvent::Error(status) => return Err(ApiError::from_status(&status)),
            };
            if !version.is_empty() {
                self.version = Some(version);
            }
        }
    }

    /// What cannot be read is passed over: what is known of it stays.
    fn readable<T>(&mut self, object: Result<T, serde_json::Error>) -> Option<T> {
        object
            .inspect_err(|error| {
                self.counters.unreadable.inc();
                if !self.told_of_unreadable {
                    tracing::warn!(
                        resource = self.query.kind.plural(),
                        %error,
                        "Failed to decode an object of the API server. Skipping it and others like it."
                    );
                    self.told_of_unreadable = true;
                }
            })
            .ok()
    }

    /// Tells what is wrong, and waits.
    async fn endure(&mut self, failure: ApiError) {
        self.counters.failures.inc();
        let asked = match failure {
            ApiError::Expired => {
                self.version = None;
                None
            }
            ApiError::Unauthorized(_) => {
                self.server.forget_client();
                None
            }
            ApiError::Busy(_, wait) => wait.map(|wait| wait.min(MAX_RETRY_AFTER)),
            ApiError::Forbidden(_) | ApiError::Other(_) => None,
        };
        // That a server went on without us for too long is nothing wrong.
        if !matches!(failure, ApiError::Expired) {
            self.health.fails(self.query.kind, self.explain(&failure));
        }
        let pause = asked.unwrap_or_default().max(self.pause);
        self.pause = (self.pause * 2).min(MAX_BACKOFF);
        sleep(pause).await;
    }

    pub fn explain(&self, failure: &ApiError) -> String {
        match failure {
            ApiError::Forbidden(_) => format!("{failure}; {}", self.query.rule()),
            ApiError::Unauthorized(_) => {
                format!("the API server does not take the credentials: {failure}")
            }
            _ => failure.to_string(),
        }
    }
}
