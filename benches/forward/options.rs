//! What to measure, for how long, and what stays the same in every case.

use std::fmt;

use clap::{Parser, ValueEnum};
use profcol_benches::bodies::Class;

use crate::wire::Compression;

/// Compare two forwarders of OTLP profiles, by default the OpenTelemetry Collector and profcol.
#[derive(Parser)]
pub struct Options {
    /// The peer: the program, and arguments after it if needed (`cargo xtask peers` builds it)
    #[arg(long, value_name = "COMMAND", default_value = "target/peers/otelcol")]
    pub collector: String,
    /// The program that is compared with it
    #[arg(long, value_name = "COMMAND", default_value = "target/release/profcol")]
    pub profcol: String,
    /// Seconds of load per run
    #[arg(long, default_value_t = 8)]
    pub seconds: u64,
    /// Seconds of load before that, not counted
    #[arg(long, default_value_t = 2)]
    pub warm_up: u64,
    /// Runs of each contestant per case
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Requests that each connection keeps in flight
    #[arg(long, default_value_t = 4)]
    pub in_flight: usize,
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "none,gzip,zstd"
    )]
    pub compression: Vec<Compression>,
    /// How the load compresses, where that is not as the forwarder does
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
    /// Give the profiled processes the numbers of so many that run here, for contestants that look at them
    /// (`--profcol 'target/release/profcol --config benches/forward/enriched.yaml'`)
    #[arg(long, default_value_t = 0)]
    pub processes: usize,
    /// Requests that a queue holds before the load has to wait; the Collector's default is 1000
    #[arg(long, default_value_t = 1000)]
    pub queue_size: usize,
}

/// What stands between receiving and sending.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Delivery {
    /// Nothing: a request is answered when the next place has answered it
    Direct,
    /// The sending queue: a request is answered when it is queued; a full queue makes the load wait
    Queued,
    /// The sending queue with batching, 8192 samples or 200 ms
    Batched,
}

/// One row of the matrix.
pub struct Case {
    pub compression: Compression,
    pub class: Class,
    pub connections: usize,
    pub delivery: Delivery,
}

impl Options {
    pub fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for &compression in &self.compression {
            for &class in &self.bodies {
                for &connections in &self.connections {
                    for &delivery in &self.delivery {
                        cases.push(Case {
                            compression,
                            class,
                            connections,
                            delivery,
                        });
                    }
                }
            }
        }
        cases
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
            "{encoding} | {} | {connections} | {}",
            self.class, self.delivery
        )
    }
}
