//! Receives profiles from Kafka, as a member of a consumer group.
//!
//! ```text
//! brokers ──► poll ──► a task per message, up to max_in_flight ──► pipelines
//!        ◄── commit ◄── offsets without a gap ◄────── outcomes ◄──────────
//! ```
//!
//! While too many messages are in flight, or memory is short, the partitions are paused, and polling goes on for the group.

mod config;
mod delivery;
mod offsets;
#[cfg(test)]
mod tests;
mod topics;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use krafka::CloseOptions;
use krafka::admin::ListTopicsOptions;
use krafka::consumer::{AutoOffsetReset, Consumer, PartitionAssignmentStrategy};
use profcol_admission::Admission;
use profcol_component::{
    BuildContext, BuildError, Capabilities, Check, ComponentStatus, Factory, Gauge, Output,
    Receiver, RunError, Stability, Status, Stop,
};
use profcol_kafka::{Error, check_cluster, check_topic};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

pub use self::config::KafkaConfig;
use self::config::{InitialOffset, Strategy};
use self::delivery::{Counters, Delivery};
use self::topics::Topics;
use crate::shared::{Deduplicator, Memory};

/// Timeout of a request to a broker.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Delay before the first retry after an error of the client, and the longest.
const RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// How often to look for topics that do not exist.
const MISSING_TOPICS_INTERVAL: Duration = Duration::from_secs(5);

/// Timeout of asking for the leaders; until then nothing is read.
const METADATA_TIMEOUT: Duration = Duration::from_secs(5);

/// Longer than a process runs.
const NEVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// How long to poll while the partitions are paused.
const PAUSED_POLL: Duration = Duration::from_millis(100);

/// How long messages in flight may take after a stop.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// How long the last commit may take, and leaving the group.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(3);

pub struct Kafka {
    config: KafkaConfig,
    topics: Topics,
    admission: Admission,
    status: ComponentStatus,
    counters: Counters,
    deduplicator: Option<Deduplicator>,
    lag: Gauge,
}

/// A member of the group.
struct Member {
    kafka: krafka::Kafka,
    consumer: Arc<Consumer>,
    subscribed: BTreeSet<String>,
    /// When to look for new topics.
    next_topic_refresh: Instant,
    is_paused: bool,
    /// Whether it was logged that no topic exists.
    is_warned: bool,
    /// The last request failed, as far as is known.
    is_away: bool,
    /// Failed requests of the client so far.
    failed: u64,
}

impl Factory for Kafka {
    const NAME: &'static str = "kafka";
    const STABILITY: Stability = Stability::Alpha;
    type Config = KafkaConfig;
    type Component = dyn Receiver;

    fn capabilities(_: &KafkaConfig) -> Capabilities {
        Capabilities::NONE
    }

    fn build(
        config: &KafkaConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Receiver>, BuildError> {
        let id = context.id.to_string();
        let labels = [("receiver", id.as_str())];
        let counter = |name, help| context.meter.counter(name, help, &labels);
        Ok(Box::new(Self {
            config: config.clone(),
            topics: Topics::new(&config.profiles).map_err(BuildError::new)?,
            admission: context.admission.clone(),
            status: context.status.clone(),
            counters: Counters {
                messages: counter("otelcol_receiver_kafka_messages", "Messages read."),
                undecodable: counter(
                    "otelcol_receiver_kafka_undecodable_messages",
                    "Messages skipped: decoding failed.",
                ),
                refused: counter(
                    "otelcol_receiver_kafka_refused_messages",
                    "Messages skipped: a destination permanently refused them.",
                ),
                repeated: counter(
                    "otelcol_receiver_kafka_repeated_messages",
                    "Messages pushed again because the exporters gave up on them.",
                ),
            },
            deduplicator: config
                .deduplicate
                .as_ref()
                .map(|it| Deduplicator::new(it, context)),
            lag: context.meter.gauge(
                "otelcol_receiver_kafka_lag_messages",
                "Messages in this member's partitions that were not read yet.",
                &labels,
            ),
        }))
    }
}

#[async_trait]
impl Receiver for Kafka {
    async fn check(&mut self) -> Vec<Check> {
        let (kafka, mut checks) = match check_cluster(&self.config.client).await {
            Ok(found) => found,
            Err(checks) => return checks,
        };
        for topic in self.topics.names() {
            checks.push(check_topic(&kafka, topic, false).await);
        }
        checks
    }

    async fn run(self: Box<Self>, output: Output, stop: Stop) -> Result<(), RunError> {
        let Self {
            config,
            topics,
            admission,
            status,
            counters,
            deduplicator,
            lag,
        } = *self;
        let headers = match config.header_extraction.extract_headers {
            true => config.header_extraction.headers.clone(),
            false => Vec::new(),
        };
        let delivery = Arc::new(Delivery::new(
            output.for_transport("kafka"),
            stop.clone(),
            Memory::new(admission, stop.clone()),
            config.profiles.encoding,
            headers,
            counters,
            deduplicator,
        ));
        let consumer_loop = ConsumerLoop {
            config,
            topics,
            status,
            lag,
            delivery,
            stop,
        };
        consumer_loop.run().await
    }
}

/// The running receiver.
struct ConsumerLoop {
    config: KafkaConfig,
    topics: Topics,
    status: ComponentStatus,
    lag: Gauge,
    delivery: Arc<Delivery>,
    stop: Stop,
}

impl ConsumerLoop {
    async fn run(self) -> Result<(), RunError> {
        let Some(mut member) = self.join().await else {
            return Ok(());
        };
        let mut in_flight = JoinSet::new();
        let mut delay = RETRY_DELAY;
        let mut next_commit = Instant::now() + self.config.commit_interval.to_std();
        while !self.stop.is_cancelled() {
            while let Some(ended) = in_flight.try_join_next() {
                // It panicked.
                ended.map_err(RunError::new)?;
            }
            let polled = tokio::select! {
                polled = self.poll(&mut member, in_flight.len()) => polled,
                () = self.stop.cancelled() => break,
            };
            match polled {
                Ok(records) => {
                    if !records.is_empty() {
                        self.recover(&mut member);
                    }
                    for record in records {
                        self.delivery.read(&record);
                        let delivery = Arc::clone(&self.delivery);
                        in_flight.spawn(async move { delivery.deliver(record).await });
                    }
                    delay = RETRY_DELAY;
                }
                Err(error) => {
                    member.is_away = true;
                    self.wait_after(&error, &mut delay).await;
                    if error.ends_the_client() {
                        leave(&member).await;
                        let Some(joined) = self.join().await else {
                            return Ok(());
                        };
                        member = joined;
                    }
                }
            }
            if Instant::now() >= next_commit {
                tokio::select! {
                    () = self.commit_and_report(&mut member) => {}
                    () = self.stop.cancelled() => break,
                }
                next_commit = Instant::now() + self.config.commit_interval.to_std();
            }
        }
        self.finish(&member, in_flight).await;
        Ok(())
    }

    async fn commit_and_report(&self, member: &mut Member) {
        self.delivery.commit().await;
        self.report_lag(member).await;
        if member.subscribed.is_empty() {
            return;
        }
        match member.follow_leaders().await {
            Ok(()) => self.recover(member),
            Err(error) => self.fail(&error),
        }
    }

    /// The cluster answers.
    fn recover(&self, member: &mut Member) {
        if std::mem::take(&mut member.is_away) {
            self.status.set(Status::Ok);
        }
    }

    fn fail(&self, error: &impl ToString) {
        let reason = error.to_string().into();
        self.status.set(Status::RecoverableError(reason));
    }

    /// Connects; `None` if a stop came first.
    async fn join(&self) -> Option<Member> {
        let mut delay = RETRY_DELAY;
        loop {
            let joining = tokio::select! {
                joining = self.connect() => joining,
                () = self.stop.cancelled() => return None,
            };
            match joining {
                Ok(member) => return Some(member),
                Err(error) => self.wait_after(&error, &mut delay).await,
            }
        }
    }

    async fn connect(&self) -> Result<Member, Error> {
        let config = &self.config;
        let kafka = config
            .client
            .connect(REQUEST_TIMEOUT, |builder| builder)
            .await?;
        let mut builder = kafka
            .consumer(&config.group_id)
            .auto_offset_reset(match config.initial_offset {
                InitialOffset::Latest => AutoOffsetReset::Latest,
                InitialOffset::Earliest => AutoOffsetReset::Earliest,
            })
            .enable_auto_commit(false)
            .session_timeout(config.session_timeout.to_std())
            .heartbeat_interval(config.heartbeat_interval.to_std())
            .partition_assignment_strategies(config.group_rebalance_strategies.iter().map(strategy))
            .fetch_min_bytes(bytes(config.min_fetch_size))
            .fetch_max_bytes(bytes(config.max_fetch_size))
            .max_partition_fetch_bytes(bytes(config.max_partition_fetch_size))
            .fetch_max_wait(config.max_fetch_wait.to_std())
            .max_decompressed_size(config.max_decompress_batch_bytes as usize)
            .max_poll_records(i32::from(config.max_in_flight))
            .max_buffered_records(i32::from(config.max_in_flight))
            .rebalance_listener(Arc::clone(&self.delivery))
            // The brokers' operators have profcol's own metrics.
            .metrics_push(false);
        if !config.group_instance_id.is_empty() {
            builder = builder.group_instance_id(&config.group_instance_id);
        }
        if !config.rack_id.is_empty() {
            builder = builder.client_rack(&config.rack_id);
        }
        let consumer = Arc::new(builder.build().await?);
        self.delivery.commit_to(&consumer);
        Ok(Member {
            kafka,
            consumer,
            subscribed: BTreeSet::new(),
            next_topic_refresh: Instant::now(),
            is_paused: false,
            is_warned: false,
            is_away: true,
            failed: 0,
        })
    }

    /// Messages to deliver; none while there is no room.
    async fn poll(
        &self,
        member: &mut Member,
        in_flight: usize,
    ) -> Result<Vec<krafka::ConsumerRecord>, Error> {
        self.subscribe(member).await?;
        if member.subscribed.is_empty() {
            tokio::time::sleep_until(member.next_topic_refresh).await;
            return Ok(Vec::new());
        }
        // Until it has arrived: readings of the memory in use include what waits in the client and is in flight.
        let answer = self.config.max_fetch_size as usize;
        let memory = self.delivery.memory.to_read(answer);
        let is_full = in_flight >= usize::from(self.config.max_in_flight) || memory.is_none();
        member.pause(is_full).await;
        let wait = match is_full {
            true => PAUSED_POLL,
            false => self.config.commit_interval.to_std(),
        };
        Ok(member.consumer.poll(wait).await?)
    }

    /// Subscribes to the topics that exist, and looks for the others from time to time.
    async fn subscribe(&self, member: &mut Member) -> Result<(), Error> {
        if Instant::now() < member.next_topic_refresh {
            return Ok(());
        }
        let listing = member.kafka.admin();
        let existing = listing.list_topics(ListTopicsOptions::default()).await?;
        let topics = self.topics.among(&existing);
        let missing = self.topics.names().difference(&topics);
        let missing: Vec<&String> = missing.collect();
        let interval = match missing.is_empty() && !topics.is_empty() {
            true if self.topics.have_patterns() => {
                self.config.client.metadata.refresh_interval.to_std()
            }
            true => NEVER,
            false => MISSING_TOPICS_INTERVAL,
        };
        member.next_topic_refresh = Instant::now() + interval;
        if topics != member.subscribed {
            member.consumer.subscribe(&topics).await?;
            tracing::info!(?topics, ?missing, group_id = %self.config.group_id, "Subscribed.");
            member.subscribed = topics;
        } else if topics.is_empty() && !member.is_warned {
            tracing::warn!(
                ?missing,
                "No topic of `profiles::topics` exists; waiting for one. Create it, or correct its name."
            );
            member.is_warned = true;
        }
        if member.subscribed.is_empty() {
            self.fail(&"no topic of `profiles::topics` exists");
            member.is_away = true;
        }
        Ok(())
    }

    /// Waits before the next attempt, longer each time.
    async fn wait_after(&self, error: &Error, delay: &mut Duration) {
        let interval = profcol_config::Duration::from(*delay);
        tracing::error!(%error, %interval, "Failed to read from Kafka. Will retry after interval.");
        self.fail(error);
        tokio::select! {
            () = tokio::time::sleep(*delay) => {}
            () = self.stop.cancelled() => {}
        }
        *delay = (*delay * 2).min(MAX_RETRY_DELAY);
    }

    async fn report_lag(&self, member: &Member) {
        let lag = member.consumer.lag().await;
        let lag: u64 = lag.values().filter_map(|partition| partition.lag).sum();
        #[expect(
            clippy::cast_precision_loss,
            reason = "topics have fewer than 2^52 messages"
        )]
        self.lag.set(lag as f64);
    }

    /// Waits for messages in flight, commits, and leaves the group.
    async fn finish(&self, member: &Member, mut in_flight: JoinSet<()>) {
        let deadline = self.stop.finish_within(SHUTDOWN_GRACE);
        let settled = async { while in_flight.join_next().await.is_some() {} };
        if timeout_at(deadline, settled).await.is_err() {
            tracing::info!(
                messages = in_flight.len(),
                "Messages without an outcome are not committed; the next member delivers them."
            );
        }
        if let Some(deduplicator) = &self.delivery.deduplicator {
            deduplicator.finish(deadline).await;
        }
        // What is not committed is delivered again.
        let _ = timeout(LEAVE_TIMEOUT, self.delivery.commit()).await;
        leave(member).await;
    }
}

impl Member {
    /// Asks for the leaders of the partitions if requests have failed. The client does so if a broker says that it leads
    /// no longer, but not if the broker is gone.
    async fn follow_leaders(&mut self) -> Result<(), Error> {
        let failed = self.consumer.metrics().consumer.errors;
        if failed == self.failed && !self.is_away {
            return Ok(());
        }
        self.failed = failed;
        self.is_away = true;
        let options = ListTopicsOptions::default().timeout(METADATA_TIMEOUT);
        self.kafka.admin().list_topics(options).await?;
        Ok(())
    }

    /// Pauses or resumes all partitions. While paused, new ones are paused, too.
    async fn pause(&mut self, pauses: bool) {
        if !pauses && !self.is_paused {
            return;
        }
        for (topic, partitions) in self.consumer.assignment().await {
            match pauses {
                true => self.consumer.pause(&topic, &partitions).await,
                false => self.consumer.resume(&topic, &partitions).await,
            }
        }
        self.is_paused = pauses;
    }
}

async fn leave(member: &Member) {
    let leaving = CloseOptions::new().timeout(LEAVE_TIMEOUT);
    if let Err(error) = member.consumer.close_with(leaving).await {
        tracing::warn!(error = %Error::from(error), "Failed to leave the group.");
    }
}

fn strategy(strategy: &Strategy) -> PartitionAssignmentStrategy {
    match strategy {
        Strategy::CooperativeSticky => PartitionAssignmentStrategy::CooperativeSticky,
        Strategy::Range => PartitionAssignmentStrategy::Range,
        Strategy::RoundRobin => PartitionAssignmentStrategy::RoundRobin,
    }
}

/// Validation keeps sizes within range.
fn bytes(size: u32) -> i32 {
    i32::try_from(size).unwrap_or(i32::MAX)
}
