//! Follows the objects of one kind: lists them by pages, then watches from there on.
//!
//! A watch that ends is resumed where it ended. If that resource version has expired, the objects are listed again.
//! Failures are retried with exponential backoff; a follower never gives up by itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use kube::core::WatchEvent;
use profcol_component::IntCounter;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::access::Server;
use crate::api::{ApiError, Query, WATCH_TIMEOUT};
use crate::health::Health;
use crate::objects::{Object, Page};

/// Delay after the first failure; it doubles with each further one.
const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// Upper limit for the delay that a server requests.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);
/// Timeout of one page, unless the component has another.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);

/// A change reported by a list or a watch.
pub enum Change<T> {
    /// A list begins: objects that are not in it are deleted.
    Begin,
    Put(T),
    Gone(T),
    /// The list is complete.
    Complete,
}

pub struct Follower {
    server: Arc<Server>,
    query: Query,
    /// Timeout of one page, and of starting a watch.
    timeout: Duration,
    /// The resource version to watch from; none before the first list.
    version: Option<String>,
    pause: Duration,
    counters: Counters,
    /// Whether objects that failed to decode were logged.
    logged_unreadable: bool,
    health: Arc<Health>,
}

/// Counters of the failures of one kind.
pub struct Counters {
    pub failures: IntCounter,
    pub unreadable: IntCounter,
}

impl Follower {
    pub fn new(server: Arc<Server>, query: Query, counters: Counters, health: Arc<Health>) -> Self {
        Self {
            server,
            query,
            timeout: LIST_TIMEOUT,
            version: None,
            pause: MIN_BACKOFF,
            counters,
            logged_unreadable: false,
            health,
        }
    }

    /// Sets the timeout of one page, and of starting a watch.
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Follows until cancelled.
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
                // Also limits the rate if the server ends each watch at once.
                Ok(()) => sleep(MIN_BACKOFF.saturating_sub(began.elapsed())).await,
                Err(failure) => self.endure(failure).await,
            }
        }
    }

    /// Lists everything once, and again when a pod is not found, at most once per `interval`.
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

    /// Lists everything once.
    pub async fn list<T>(&mut self, on: &mut impl FnMut(Change<T>)) -> Result<(), ApiError>
    where
        T: Object + DeserializeOwned,
    {
        on(Change::Begin);
        let mut next = String::new();
        loop {
            let client = self.server.client().await?;
            let page = client.request::<Page<T>>(self.query.list(&next)?);
            let page = timeout(self.timeout, page)
                .await
                .map_err(|_| ApiError::Timeout("the list"))??;
            for object in page.items {
                if let Some(object) = self.readable(object.0) {
                    on(Change::Put(object));
                }
            }
            next = page.metadata.next;
            if next.is_empty() {
                on(Change::Complete);
                self.version = Some(page.metadata.resource_version);
                self.health.is_well(self.query.plural());
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
        let client = self.server.client().await?;
        let watch = client.request_events::<Value>(self.query.watch(&version)?);
        let watch = timeout(self.timeout, watch)
            .await
            .map_err(|_| ApiError::Timeout("starting the watch"))??;
        let mut events = std::pin::pin!(watch);
        self.health.is_well(self.query.plural());
        loop {
            let event = timeout(WATCH_TIMEOUT, events.next()).await;
            let Some(event) = event.map_err(|_| ApiError::Timeout("the watch"))? else {
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

    /// Skips an object that fails to decode; its cached version is kept.
    fn readable<T>(&mut self, object: Result<T, serde_json::Error>) -> Option<T> {
        object
            .inspect_err(|error| {
                self.counters.unreadable.inc();
                if !self.logged_unreadable {
                    tracing::warn!(
                        resource = self.query.plural(),
                        %error,
                        "Failed to decode an object of the API server. Skipping it and others like it."
                    );
                    self.logged_unreadable = true;
                }
            })
            .ok()
    }

    /// Counts the failure, logs it and shows it as the component's status.
    pub fn report(&self, failure: &ApiError) {
        self.counters.failures.inc();
        // An expired version is part of normal operation.
        if !matches!(failure, ApiError::Expired) {
            self.health
                .fails(self.query.plural(), self.explain(failure));
        }
    }

    /// Reports the failure, and waits.
    async fn endure(&mut self, failure: ApiError) {
        self.report(&failure);
        let requested = match failure {
            ApiError::Expired => {
                self.version = None;
                None
            }
            ApiError::Unauthorized(_) => {
                self.server.forget_client();
                None
            }
            ApiError::Busy(_, wait) => wait.map(|wait| wait.min(MAX_RETRY_AFTER)),
            _ => None,
        };
        let pause = requested.unwrap_or_default().max(self.pause);
        self.pause = (self.pause * 2).min(MAX_BACKOFF);
        sleep(pause).await;
    }

    pub fn explain(&self, failure: &ApiError) -> String {
        match failure {
            ApiError::Forbidden(_) => format!("{failure}; {}", self.query.rule()),
            ApiError::Unauthorized(_) => {
                format!("the API server rejected the credentials: {failure}")
            }
            _ => failure.to_string(),
        }
    }
}
