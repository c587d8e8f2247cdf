//! Kafka between two forwarders: the exporter and the receiver of each contestant, on one broker.
//!
//! The load sends OTLP to a contestant, which exports it to a new topic. Then both programs, one after the other, read the whole
//! topic and send it to the sink, which must get each accepted sample once.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use profcol_benches::bodies;
use profcol_test_harness::kafka::Broker;
use profcol_test_harness::procfs::{self, CpuTime};

use crate::load::{Load, Shape};
use crate::options::{Case, Options};
use crate::program::{self, Program};
use crate::report::median;
use crate::sink::Sink;

const PARTITIONS: i32 = 3;
/// A receiver that delivers nothing for this long is broken.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Contestant {
    Collector,
    Profcol,
    /// With its default: keyed by resource, which the Collector does not do with profiles.
    ProfcolKeyed,
}

/// What one contestant did with all samples of a topic.
struct Measured {
    samples: u64,
    cpu: Duration,
    wall: Duration,
    peak_bytes: u64,
}

/// The runs of a case.
#[derive(Default)]
struct Runs {
    exporters: [Vec<Measured>; 3],
    receivers: [Vec<Measured>; 2],
}

pub fn run(options: &Options) -> Result<()> {
    let broker = Broker::start().context("no broker: `cargo xtask peers` fetches it")?;
    println!(
        "| | load | compression | body | connections | delivery | collector, samples per core-second | profcol | ratio (min-max) \
         | collector, samples/s | profcol | collector, peak MB | profcol |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    );
    let mut topics = (1..).map(|number| format!("profiles-{number}"));
    for case in options.cases() {
        let mut runs = Runs::default();
        for round in 1..=options.rounds {
            for (exporter, topic) in Contestant::EXPORTERS.into_iter().zip(&mut topics) {
                let trial = Trial {
                    options,
                    broker: &broker,
                    case: &case,
                };
                trial
                    .run(exporter, &topic, &mut runs)
                    .with_context(|| format!("{case}, round {round}, {exporter}"))?;
            }
        }
        let [collector, profcol, keyed] = &runs.exporters;
        println!("| exporter | {case} | {} |", row(collector, profcol));
        println!("| exporter, keyed | {case} | {} |", row(collector, keyed));
        let [collector, profcol] = &runs.receivers;
        println!("| receiver | {case} | {} |", row(collector, profcol));
    }
    Ok(())
}

struct Trial<'a> {
    options: &'a Options,
    broker: &'a Broker,
    case: &'a Case,
}

impl Trial<'_> {
    fn run(&self, exporter: Contestant, topic: &str, runs: &mut Runs) -> Result<()> {
        self.broker.create_topic(topic, PARTITIONS);
        let exported = self.export(exporter, topic)?;
        let samples = exported.samples;
        eprintln!("{} | exporter | {exporter} | {exported}", self.case);
        runs.exporters[exporter as usize].push(exported);
        for receiver in Contestant::RECEIVERS {
            let received = self.receive(receiver, topic, samples)?;
            eprintln!("{} | receiver | {receiver} | {received}", self.case);
            runs.receivers[receiver as usize].push(received);
        }
        Ok(())
    }

    fn export(&self, contestant: Contestant, topic: &str) -> Result<Measured> {
        let (case, options) = (self.case, self.options);
        let load = Load::new(
            case.load,
            &bodies::load(case.class)?,
            options.sent_as.unwrap_or(case.compression),
        )?;
        let shape = Shape {
            connections: case.connections,
            in_flight: options.in_flight,
        };
        let address = program::free_address()?;
        let configuration = self.exporter(contestant, topic, address);
        let program = Program::start(self.command(contestant), &configuration, address)?;
        let measure = || {
            let mut sent = load.run(address, shape, Duration::from_secs(options.warm_up))?;
            let warm_up = sent.accepted_samples;
            let (cpu, began) = (CpuTime::of(program.pid())?, Instant::now());
            sent += load.run(address, shape, Duration::from_secs(options.seconds))?;
            ensure!(sent.refused == 0, "{} requests refused", sent.refused);
            let cpu = (CpuTime::of(program.pid())? - cpu).total();
            let counted = sent.accepted_samples - warm_up;
            Ok(Measured {
                samples: sent.accepted_samples,
                // The topic gets the warm-up, too.
                cpu: cpu.mul_f64(sent.accepted_samples as f64 / counted as f64),
                wall: began
                    .elapsed()
                    .mul_f64(sent.accepted_samples as f64 / counted as f64),
                peak_bytes: procfs::peak_resident(program.pid())?,
            })
        };
        measure().with_context(|| program.last_words())
    }

    /// Reads the whole topic, which has this many samples.
    fn receive(&self, contestant: Contestant, topic: &str, samples: u64) -> Result<Measured> {
        let sink = Sink::start(self.options.sink, 0)?;
        let address = program::free_address()?;
        let group = format!("{topic}-{contestant}");
        let configuration = self.receiver(topic, &group, address, sink.address());
        let program = Program::start(self.command(contestant), &configuration, address)?;
        let measure = || {
            let pid = program.pid();
            let (mut began, mut cpu, mut before) = (Instant::now(), CpuTime::of(pid)?, 0);
            let (mut received, mut progress) = (0, Instant::now());
            while received < samples {
                ensure!(
                    progress.elapsed() < STALL_TIMEOUT && began.elapsed() < TIMEOUT,
                    "{received} of {samples} samples received"
                );
                std::thread::sleep(Duration::from_millis(2));
                let now = sink.received()?.samples;
                if now > received {
                    // The start and joining the group do not count.
                    if received == 0 {
                        (began, cpu, before) = (Instant::now(), CpuTime::of(pid)?, now);
                    }
                    (received, progress) = (now, Instant::now());
                }
            }
            let (wall, cpu) = (began.elapsed(), (CpuTime::of(pid)? - cpu).total());
            std::thread::sleep(Duration::from_millis(200));
            let received = sink.received()?.samples;
            ensure!(
                received == samples,
                "{received} of {samples} samples received"
            );
            Ok(Measured {
                samples: samples - before,
                cpu,
                wall,
                peak_bytes: procfs::peak_resident(pid)?,
            })
        };
        measure().with_context(|| program.last_words())
    }

    fn command(&self, contestant: Contestant) -> &str {
        match contestant {
            Contestant::Collector => &self.options.collector_with_kafka,
            Contestant::Profcol | Contestant::ProfcolKeyed => &self.options.profcol,
        }
    }

    /// With what profcol has by default: acknowledged by all replicas.
    fn exporter(&self, contestant: Contestant, topic: &str, listen: SocketAddr) -> String {
        let broker = self.broker.address;
        let compression = self.case.compression.name();
        let queue = self.case.delivery.queue(self.options.queue_size);
        let keyed = match contestant {
            Contestant::Collector => "",
            Contestant::Profcol => "    partition_profiles_by_resource_attributes: false\n",
            Contestant::ProfcolKeyed => "    partition_profiles_by_resource_attributes: true\n",
        };
        let exporter = format!(
            "  kafka:
    brokers: ['{broker}']
{keyed}    profiles: {{topic: {topic}, encoding: otlp_proto}}
    timeout: 60s
    producer: {{required_acks: -1, compression: {compression}}}
    retry_on_failure: {{max_elapsed_time: 0s}}
    sending_queue: {queue}"
        );
        configuration(listen, "", &exporter, "otlp", "kafka")
    }

    /// It also listens for OTLP, so that a start is noticed.
    fn receiver(&self, topic: &str, group: &str, listen: SocketAddr, sink: SocketAddr) -> String {
        let broker = self.broker.address;
        let compression = self.case.compression.name();
        let queue = self.case.delivery.queue(self.options.queue_size);
        let receiver = format!(
            "  kafka:
    brokers: ['{broker}']
    group_id: {group}
    initial_offset: earliest
    profiles: {{topics: [{topic}], encoding: otlp_proto}}
"
        );
        let exporter = format!(
            "  otlp_grpc:
    endpoint: {sink}
    tls: {{insecure: true}}
    compression: {compression}
    timeout: 60s
    retry_on_failure: {{max_elapsed_time: 0s}}
    sending_queue: {queue}"
        );
        configuration(listen, &receiver, &exporter, "otlp, kafka", "otlp_grpc")
    }
}

fn configuration(
    listen: SocketAddr,
    receiver: &str,
    exporter: &str,
    from: &str,
    to: &str,
) -> String {
    format!(
        "\
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: '{listen}', max_recv_msg_size_mib: 64}}}}}}
{receiver}exporters:
{exporter}
service:
  telemetry:
    metrics: {{level: none}}
    logs: {{level: warn}}
  pipelines:
    profiles:
      receivers: [{from}]
      exporters: [{to}]
"
    )
}

/// The medians of both contestants, and of the ratios of runs.
fn row(collector: &[Measured], profcol: &[Measured]) -> String {
    let of =
        |runs: &[Measured], figure: fn(&Measured) -> f64| median(runs.iter().map(figure).collect());
    let pairs = collector.iter().zip(profcol);
    let ratios: Vec<f64> = pairs
        .map(|(theirs, ours)| ours.per_core_second() / theirs.per_core_second())
        .collect();
    let lowest = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = ratios.iter().copied().fold(0.0, f64::max);
    let both = |figure| format!("{:.0} | {:.0}", of(collector, figure), of(profcol, figure));
    format!(
        "{} | **{:.2}** ({lowest:.2}-{highest:.2}) | {} | {}",
        both(Measured::per_core_second),
        median(ratios),
        both(Measured::per_second),
        both(|it| it.peak_bytes as f64 / 1e6),
    )
}

impl Contestant {
    const EXPORTERS: [Self; 3] = [Self::Collector, Self::Profcol, Self::ProfcolKeyed];
    const RECEIVERS: [Self; 2] = [Self::Collector, Self::Profcol];
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Collector => "collector",
            Self::Profcol => "profcol",
            Self::ProfcolKeyed => "profcol, keyed",
        })
    }
}

impl Measured {
    fn per_core_second(&self) -> f64 {
        self.samples as f64 / self.cpu.as_secs_f64()
    }

    fn per_second(&self) -> f64 {
        self.samples as f64 / self.wall.as_secs_f64()
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} samples in {:.1} s, {:.0} per core-second, peak {:.0} MB",
            self.samples,
            self.wall.as_secs_f64(),
            self.per_core_second(),
            self.peak_bytes as f64 / 1e6
        )
    }
}
