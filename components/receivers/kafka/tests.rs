//! Messages without a broker: which wait for memory, and for how long they hold it; which are duplicates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use krafka::consumer::{ConsumerRecord, TopicPartition};
use profcol_admission::Admission;
use profcol_component::testkit::{Sink, context, load, profiles};
use profcol_component::{BatchId, Meter, Output, Refusal, Stop};
use profcol_kafka::Encoding;
use tokio::task::JoinSet;

use super::KafkaConfig;
use super::delivery::{Counters, Delivery};
use crate::shared::{Deduplicator, Memory};

const LIMIT: u64 = 10 << 20;

struct Rig {
    admission: Admission,
    sink: Arc<Sink>,
    stop: Stop,
    delivery: Arc<Delivery>,
}

impl Rig {
    fn new(in_use: fn() -> Option<u64>, encoding: Encoding, sink: Sink) -> Self {
        Self::with(in_use, encoding, sink, "{}")
    }

    fn with(in_use: fn() -> Option<u64>, encoding: Encoding, sink: Sink, options: &str) -> Self {
        let config = load::<KafkaConfig>(options).unwrap();
        let deduplicate = config.deduplicate.as_ref();
        let admission = Admission::with_memory_reader(in_use, LIMIT);
        let (sink, stop, meter) = (Arc::new(sink), Stop::new(), Meter::default());
        let counter = |name| meter.counter(name, "of a test", &[]);
        let counters = Counters {
            messages: counter("messages"),
            undecodable: counter("undecodable"),
            refused: counter("refused"),
            repeated: counter("repeated"),
        };
        let delivery = Delivery::new(
            Output::new(sink.clone(), meter, "kafka"),
            stop.clone(),
            Memory::new(admission.clone(), stop.clone()),
            encoding,
            Vec::new(),
            counters,
            deduplicate.map(|it| Deduplicator::new(it, &context("kafka"))),
        );
        Self {
            admission,
            sink,
            stop,
            delivery: Arc::new(delivery),
        }
    }

    fn deliver(&self, value: Bytes) -> JoinSet<()> {
        self.deliver_record(ConsumerRecord::new("t", 0, 7, None, Some(value)))
    }

    /// A message with the same profiles as all others, sent as this batch.
    fn deliver_as(&self, id: &str, offset: i64) -> JoinSet<()> {
        let value = Some(profiles(50).to_wire());
        let mut record = ConsumerRecord::new("t", 0, offset, None, value);
        let id = Some(Bytes::copy_from_slice(id.as_bytes()));
        record.headers.push((BatchId::HEADER.to_owned(), id));
        self.deliver_record(record)
    }

    fn deliver_record(&self, record: ConsumerRecord) -> JoinSet<()> {
        self.delivery.read(&record);
        let delivery = Arc::clone(&self.delivery);
        let mut delivering = JoinSet::new();
        delivering.spawn(async move { delivery.deliver(record).await });
        delivering
    }

    fn may_read_more(&self) -> bool {
        self.delivery.memory.to_read(1 << 20).is_some()
    }
}

/// On the paused clock.
async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_waits_for_memory_and_no_more_are_read_meanwhile() {
    static IN_USE: AtomicU64 = AtomicU64::new(0);
    for encoding in [Encoding::OtlpProto, Encoding::OtlpJson] {
        IN_USE.store(LIMIT - 1000, Ordering::Relaxed);
        let in_use = || Some(IN_USE.load(Ordering::Relaxed));
        let rig = Rig::new(in_use, encoding, Sink::default());
        // Without it, the message would be the only thing in progress.
        let _other = rig.admission.reserve(1).unwrap();
        let delivering = rig.deliver(encoding.encode(&profiles(50)));
        seconds(30).await;
        assert_eq!(rig.sink.offered(), 0, "{encoding:?}");
        IN_USE.store(0, Ordering::Relaxed);
        assert!(!rig.may_read_more(), "{encoding:?}");
        delivering.join_all().await;
        assert_eq!(rig.sink.accepted(), [50], "{encoding:?}");
        assert!(rig.may_read_more(), "{encoding:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_message_at_a_time_proceeds_if_memory_stays_short() {
    for encoding in [Encoding::OtlpProto, Encoding::OtlpJson] {
        let sink = Sink::default().taking(Duration::from_secs(5));
        let rig = Rig::new(|| Some(LIMIT), encoding, sink);
        let deliver = |samples| rig.deliver(encoding.encode(&profiles(samples)));
        let (first, second) = (deliver(50), deliver(60));
        seconds(3).await;
        assert_eq!(rig.sink.offered(), 1, "{encoding:?}");
        assert!(!rig.may_read_more(), "{encoding:?}");
        first.join_all().await;
        second.join_all().await;
        assert_eq!(rig.sink.accepted().len(), 2, "{encoding:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn memory_is_held_while_a_batch_is_pushed_and_not_between_attempts() {
    let refusal = Refusal::retry_after("later", Duration::from_secs(10));
    let sink = Sink::refusing([refusal]).taking(Duration::from_secs(5));
    let rig = Rig::new(|| Some(0), Encoding::OtlpProto, sink);
    let delivering = rig.deliver(profiles(50).to_wire());
    let all = usize::try_from(LIMIT).unwrap();
    // Pushed until 5 s, refused, and pushed from 15 s to 20 s.
    for (wait, is_held) in [(2, true), (6, false), (9, true), (5, false)] {
        seconds(wait).await;
        assert_eq!(rig.admission.reserve(all).is_err(), is_held);
    }
    delivering.join_all().await;
    assert_eq!(rig.sink.accepted(), [50]);
}

#[tokio::test(start_paused = true)]
async fn a_stop_leaves_a_waiting_message_to_the_next_member() {
    let rig = Rig::new(|| Some(LIMIT - 1), Encoding::OtlpProto, Sink::default());
    // Without it, the message would be the only thing in progress.
    let _other = rig.admission.reserve(1).unwrap();
    let delivering = rig.deliver(profiles(50).to_wire());
    seconds(30).await;
    rig.stop.cancel();
    delivering.join_all().await;
    assert_eq!(rig.sink.offered(), 0);
    let partition = TopicPartition::new("t", 0);
    assert!(rig.delivery.offsets.lock().are_in_flight(&[partition]));
}

#[tokio::test(start_paused = true)]
async fn a_batch_has_the_id_of_its_message() {
    let refusal = Refusal::retry("later");
    let sink = Sink::refusing([refusal]);
    let rig = Rig::new(|| Some(0), Encoding::OtlpProto, sink);
    let id = BatchId::unique();
    rig.deliver_as(&id.to_string(), 1).join_all().await;
    assert_eq!(rig.sink.offered_ids(), [id, id]);
    // Whatever is in it.
    for header in ["", "no id", "\u{0}"] {
        rig.deliver_as(header, 2).join_all().await;
    }
    let others = &rig.sink.offered_ids()[2..];
    assert_eq!(others.len(), 3);
    assert!(others[0] != others[1] && others[1] != others[2]);
}

#[tokio::test(start_paused = true)]
async fn duplicates_are_passed_on_unless_they_are_to_be_dropped() {
    let id = BatchId::unique().to_string();
    let partition = TopicPartition::new("t", 0);
    for (options, passed) in [("{}", 3), ("deduplicate: ", 1)] {
        let sink = Sink::default().taking(Duration::from_secs(5));
        let rig = Rig::with(|| Some(0), Encoding::OtlpProto, sink, options);
        // The second while the first is on its way.
        let (first, second) = (rig.deliver_as(&id, 1), rig.deliver_as(&id, 2));
        first.join_all().await;
        second.join_all().await;
        rig.deliver_as(&id, 3).join_all().await;
        assert_eq!(rig.sink.accepted().len(), passed, "{options}");
        // All may be committed.
        let offsets = rig.delivery.offsets.lock();
        assert!(!offsets.are_in_flight(std::slice::from_ref(&partition)));
        assert_eq!(offsets.to_commit().values().collect::<Vec<_>>(), [&4]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_message_is_not_remembered() {
    let sink = Sink::refusing([Refusal::permanent("no")]).taking(Duration::from_secs(5));
    let rig = Rig::with(|| Some(0), Encoding::OtlpProto, sink, "deduplicate: ");
    let id = BatchId::unique().to_string();
    let (first, second) = (rig.deliver_as(&id, 1), rig.deliver_as(&id, 2));
    first.join_all().await;
    second.join_all().await;
    assert_eq!((rig.sink.offered(), rig.sink.accepted()), (1, vec![]));
    // What was refused is not remembered.
    rig.deliver_as(&id, 3).join_all().await;
    assert_eq!(rig.sink.accepted(), [50]);
}
