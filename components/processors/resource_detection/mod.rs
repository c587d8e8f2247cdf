//! Adds attributes of this host, its environment and its cloud to every resource.
//!
//! All detectors run concurrently at startup, with a short timeout. Failed ones are retried
//! later: they fail no start and delay no batch.

mod azure;
mod config;
mod docker;
mod ec2;
mod env;
mod error;
mod gcp;
mod metadata;
mod network;
mod own_container;
mod switches;
mod system;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use parking_lot::Mutex;
use profcol_component::{
    Answer, Batch, BuildContext, BuildError, Consumer, Factory, IntCounter, Processor, RunError,
    Stability, StartError, Stop,
};
use profcol_profile::Attributes;
use tokio::time::timeout;

use self::config::Detector;
pub use self::config::ResourceDetectionConfig;
use self::error::DetectionError;
use crate::shared::resource_cache::{Edited, ResourceCache};
use profcol_metadata::attributes::find;

/// Failed detectors are retried after 1, 2, 4, … seconds: about four minutes in all.
const RETRIES: u32 = 8;

pub struct ResourceDetectionProcessor {
    config: ResourceDetectionConfig,
    endpoints: Endpoints,
    found: Mutex<DetectedAttributes>,
    resource_cache: ResourceCache,
    detected: IntCounter,
    failed: IntCounter,
}

/// The endpoints of Docker and the clouds' metadata services.
struct Endpoints {
    docker: String,
    ec2: String,
    gcp: String,
    azure: String,
}

/// The last result of each detector.
#[derive(Default)]
struct DetectedAttributes {
    by_detector: Vec<Option<Attributes>>,
    merged: Arc<Attributes>,
    /// The number of detection runs.
    version: u64,
}

impl Factory for ResourceDetectionProcessor {
    const NAME: &'static str = "resource_detection";
    const ALIASES: &'static [&'static str] = &["resourcedetection"];
    const STABILITY: Stability = Stability::Alpha;
    type Config = ResourceDetectionConfig;
    type Component = dyn Processor;

    fn build(
        config: &ResourceDetectionConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Processor>, BuildError> {
        Ok(Box::new(Self::new(
            config,
            Endpoints::of_this_host(),
            context,
        )))
    }
}

impl ResourceDetectionProcessor {
    fn new(config: &ResourceDetectionConfig, endpoints: Endpoints, context: &BuildContext) -> Self {
        let id = context.id.to_string();
        let counter = |name, help| context.meter.counter(name, help, &[("processor", &id)]);
        Self {
            config: config.clone(),
            endpoints,
            found: Mutex::new(DetectedAttributes {
                by_detector: vec![None; config.detectors.len()],
                ..DetectedAttributes::default()
            }),
            resource_cache: ResourceCache::new(),
            detected: counter(
                "profcol_resource_detection_detected",
                "Successful runs of a detector.",
            ),
            failed: counter(
                "profcol_resource_detection_failed",
                "Failed runs of a detector.",
            ),
        }
    }

    /// Runs all detectors; returns whether one failed. Its previous result is kept.
    async fn detect(&self) -> bool {
        let limit = self.config.timeout.into();
        let running = self.config.detectors.iter().map(async |&detector| {
            let late = || Err(DetectionError::Timeout(self.config.timeout));
            let answer = timeout(limit, self.ask(detector)).await;
            (detector, answer.unwrap_or_else(|_| late()))
        });
        let answers = join_all(running).await;
        let mut found = self.found.lock();
        let mut has_failed = false;
        for ((detector, answer), known) in answers.into_iter().zip(&mut found.by_detector) {
            let detector = detector.name();
            match answer {
                Ok(attributes) => {
                    self.detected.inc();
                    let keys: Vec<&str> = attributes.iter().map(|it| &*it.key).collect();
                    tracing::debug!(detector, attributes = %keys.join(", "), "Detected.");
                    *known = Some(attributes);
                }
                Err(error) => {
                    self.failed.inc();
                    has_failed = true;
                    tracing::warn!(detector, %error, "Detector failed; retrying later.");
                }
            }
        }
        let mut merged = Attributes::new();
        for attribute in found.by_detector.iter().flatten().flatten() {
            if find(&merged, &attribute.key).is_none() {
                merged.push(attribute.clone());
            }
        }
        found.merged = Arc::new(merged);
        found.version += 1;
        has_failed
    }

    async fn ask(&self, detector: Detector) -> Result<Attributes, DetectionError> {
        let config = &self.config;
        match detector {
            Detector::Env => env::detect(&config.env),
            Detector::System => {
                let config = config.system.clone();
                let detected = tokio::task::spawn_blocking(move || system::detect(&config));
                let mut found = match detected.await {
                    Ok(found) => found?,
                    Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                    Err(_) => return Err(DetectionError::ShuttingDown),
                };
                let switches = &self.config.system.resource_attributes;
                switches.apply(system::ATTRIBUTES, &mut found);
                Ok(found)
            }
            Detector::Docker => {
                let own = own_container::OwnContainer::find().map(|own| own.id);
                let switches = &config.docker.resource_attributes;
                docker::detect(switches, &self.endpoints.docker, own.as_deref()).await
            }
            Detector::Container => Ok(own_container::detect(&config.container.resource_attributes)),
            Detector::Ec2 => ec2::detect(&config.ec2, &self.endpoints.ec2).await,
            Detector::Gcp => gcp::detect(&config.gcp, &self.endpoints.gcp).await,
            Detector::Azure => azure::detect(&config.azure, &self.endpoints.azure).await,
        }
    }

    /// Returns whether anything changed.
    fn apply(&self, detected: &Attributes, attributes: &mut Attributes) -> bool {
        let mut is_changed = false;
        for new in detected {
            match attributes.iter_mut().find(|known| known.key == new.key) {
                None => attributes.push(new.clone()),
                Some(known) if self.config.replaces && known.value != new.value => {
                    known.value = new.value.clone();
                }
                Some(_) => continue,
            }
            is_changed = true;
        }
        is_changed
    }

    fn merged(&self) -> Arc<Attributes> {
        let found = self.found.lock();
        Arc::clone(&found.merged)
    }

    /// The version of the detected attributes.
    fn version(&self) -> u64 {
        self.found.lock().version
    }

    fn has_unanswered(&self) -> bool {
        let found = self.found.lock();
        found.by_detector.iter().any(Option::is_none)
    }
}

#[async_trait]
impl Processor for ResourceDetectionProcessor {
    async fn start(&self) -> Result<(), StartError> {
        self.detect().await;
        Ok(())
    }

    async fn process(&self, mut batch: Batch, next: &dyn Consumer) -> Answer {
        let version = self.version();
        let detected = self.merged();
        if !detected.is_empty() {
            let lookup = self.resource_cache.lookup(&batch.profiles, version);
            lookup.apply(&mut batch.profiles, |resource| {
                Edited::cacheable(self.apply(&detected, &mut resource.attributes))
            });
        }
        next.consume(batch).await
    }

    async fn run(self: Arc<Self>, _: Arc<dyn Consumer>, stop: Stop) -> Result<(), RunError> {
        let refresh: Duration = self.config.refresh_interval.into();
        let mut retries = 0;
        loop {
            let wait = match self.has_unanswered() && retries < RETRIES {
                true => Duration::from_secs(1 << retries),
                false if refresh.is_zero() => break,
                false => refresh,
            };
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(wait) => {}
            }
            retries += 1;
            self.detect().await;
        }
        stop.cancelled().await;
        Ok(())
    }
}

// === impl Endpoints ===

impl Endpoints {
    fn of_this_host() -> Self {
        Self {
            docker: docker::endpoint(),
            ec2: ec2::endpoint(),
            gcp: gcp::endpoint(),
            azure: azure::ENDPOINT.to_owned(),
        }
    }
}
