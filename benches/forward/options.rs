//! The cases to measure, and the settings common to all of them.

use std::fmt;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use profcol_benches::bodies::Class;

use crate::load::Client;
use crate::sink;
use crate::stored::Queue;
use crate::wire::Compression;

/// Compare two forwarders of OTLP profiles, by default the OpenTelemetry Collector and profcol.
#[derive(Parser)]
pub struct Options {
    /// The peer: the program, with arguments if needed (`cargo xtask peers` builds it)
    #[arg(long, value_name = "COMMAND", default_value = "target/peers/otelcol")]
    pub collector: String,
    /// The program to compare with it
    #[arg(long, value_name = "COMMAND", default_value = "target/release/profcol")]
    pub profcol: String,
    /// Seconds of load per run
    #[arg(long, default_value_t = 8)]
    pub seconds: u64,
    /// Warm-up seconds before that, not counted
    #[arg(long, default_value_t = 2)]
    pub warm_up: u64,
    /// Runs per contestant and case
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Requests in flight per connection
    #[arg(long, default_value_t = 4)]
    pub in_flight: usize,
    /// The client that sends to the forwarder
    #[arg(long, value_enum, value_delimiter = ',', default_value = "grpc-go")]
    pub load: Vec<Client>,
    /// The sink that the forwarder sends to
    #[arg(long, value_enum, default_value = "collector")]
    pub sink: sink::Kind,
    #[arg(long, value_enum, value_delimiter = ',', default_value = "none,gzip")]
    pub compression: Vec<Compression>,
    /// Compression of the load, if different from the forwarder's
    #[arg(long, value_enum, value_name = "COMPRESSION")]
    pub sent_as: Option<Compression>,
    #[arg(long, value_enum, value_delimiter = ',', default_value = "small,large")]
    pub bodies: Vec<Class>,
    #[arg(long, value_delimiter = ',', default_value = "1,8")]
    pub connections: Vec<usize>,
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "direct,batched"
    )]
    pub delivery: Vec<Delivery>,
    /// Replace the PIDs in the profiles by those of this many processes started here, for contestants that look at the
    /// processes (`--profcol 'target/release/profcol --config benches/forward/enriched.yaml'`)
    #[arg(long, default_value_t = 0)]
    pub processes: usize,
    /// Queue size in requests before the load has to wait; the Collector's default is 1000
    #[arg(long, default_value_t = 1000)]
    pub queue_size: usize,
    /// Compare sending queues instead, in memory and on the disk of this directory
    #[arg(long, value_name = "DIRECTORY")]
    pub stored_in: Option<PathBuf>,
    /// The queues to compare, with `--stored-in`
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "collector-memory,collector-unsynced,collector-synced,memory,never,interval,always"
    )]
    pub queues: Vec<Queue>,
    /// With `--stored-in`: fill each stored queue with this many MiB, kill its process, and start it again
    #[arg(long, value_name = "MIB")]
    pub backlog: Option<u64>,
    /// Compare the exporters and receivers of Kafka instead, on a broker (`cargo xtask peers` fetches it)
    #[arg(long)]
    pub kafka: bool,
    /// The peer with `--kafka` (`cargo xtask peers` builds it)
    #[arg(
        long,
        value_name = "COMMAND",
        default_value = "target/peers/otelcol-kafka"
    )]
    pub collector_with_kafka: String,
}

/// The delivery mode between receiver and exporter.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Delivery {
    /// No queue: a request is answered when the destination has answered
    Direct,
    /// A sending queue: a request is answered once queued; a full queue makes the load wait
    Queued,
    /// A sending queue with batching, 8192 samples or 200 ms
    Batched,
}

/// A row of the matrix.
pub struct Case {
    pub load: Client,
    pub compression: Compression,
    pub class: Class,
    pub connections: usize,
    pub delivery: Delivery,
}

impl Options {
    pub fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for &load in &self.load {
            for &compression in &self.compression {
                for &class in &self.bodies {
                    for &connections in &self.connections {
                        for &delivery in &self.delivery {
                            cases.push(Case {
                                load,
                                compression,
                                class,
                                connections,
                                delivery,
                            });
                        }
                    }
                }
            }
        }
        cases
    }
}

impl Delivery {
    /// The exporter's `sending_queue`.
    pub fn queue(self, queue_size: usize) -> String {
        match self {
            Self::Direct => "{enabled: false}".to_owned(),
            Self::Queued => format!("{{queue_size: {queue_size}, block_on_overflow: true}}"),
            Self::Batched => format!(
                "{{queue_size: {queue_size}, block_on_overflow: true, batch: {{min_size: 8192, flush_timeout: 200ms}}}}"
            ),
        }
    }
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Queued => "queued",
            Self::Batched => "batched",
        })
    }
}

/// As table cells.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (encoding, connections) = (self.compression.name(), self.connections);
        write!(
            f,
            "{} | {encoding} | {} | {connections} | {}",
            self.load, self.class, self.delivery
        )
    }
}
