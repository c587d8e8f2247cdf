//! The cost of a sending queue: in memory, and on disk with each `fsync` setting. The whole engine runs in this
//! process, between a source of prepared batches and a destination that only counts, so that everything else is the
//! queue.
//!
//! ```console
//! $ cargo run --release -p profcol-benches --bin queue -- --mib 2000 --directory /var/tmp
//! ```
//!
//! With `--exporters 2` each batch goes to two of them, which share what they store unless `--separate` is given.
//!
//! With `--leave-in FOLDER` it stores, and is then killed by SIGKILL: the queues are those of the exporters `otlp_grpc/0` and so
//! on, with which profcol can be started on this folder.
//!
//! *through*: the destination accepts each batch immediately. *stored*: it accepts none, and batches accumulate;
//! *opened*: a new process loads them until it is ready; *drained*: until they are delivered.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use clap::Parser;
use profcol_component::testkit::profiles;
use profcol_component::{
    Batch, BuildContext, BuildError, Delivered, Delivery, DeliverySettings, Exporter, Factory,
    Meter, Output, Receiver, Refusal, Registry, RunError, SelfTelemetry, Stop, entry,
};
use profcol_config::{Config, ConfigProviders, Input, Problems, ProviderError, resolve};
use profcol_engine::{Document, Graph, Service};
use profcol_profile::{Profiles, Validation};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::task::JoinSet;

#[derive(Parser)]
struct Options {
    /// Amount of data per queue.
    #[arg(long, default_value_t = 500)]
    mib: u64,
    /// Samples per batch; a sample takes about 42 bytes.
    #[arg(long, default_value_t = 1000)]
    samples: usize,
    /// Number of concurrent senders.
    #[arg(long, default_value_t = 8)]
    clients: u64,
    /// Directory of the stored queues, on the disk to be measured.
    #[arg(long, default_value = ".")]
    directory: PathBuf,
    /// Number of exporters that get each batch.
    #[arg(long, default_value_t = 1)]
    exporters: u64,
    /// Gives each exporter a storage of its own, with which it shares nothing.
    #[arg(long)]
    separate: bool,
    /// Store in this folder with the first of the queues, and kill this process.
    #[arg(long)]
    leave_in: Option<PathBuf>,
    /// Only measure these queues.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "memory,never,interval,always"
    )]
    queues: Vec<String>,
}

/// The batches to push and the delivery counts. The components of a configuration share nothing else.
static WORK: OnceLock<Work> = OnceLock::new();

struct Work {
    batch: Profiles,
    /// Gives each batch other bytes: otherwise queues would share all of them.
    varies: bool,
    to_push: AtomicU64,
    pushed: AtomicU64,
    delivered: AtomicU64,
    takes: AtomicBool,
    clients: u64,
    changed: Notify,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let wire = profiles(options.samples).to_wire();
    let bytes = wire.len() as u64;
    let batch = Profiles::from_wire(wire, Validation::Reject)?.profiles;
    let batches = (options.mib << 20) / bytes;
    let work = WORK.get_or_init(|| Work {
        batch,
        varies: options.exporters > 1,
        to_push: AtomicU64::new(0),
        pushed: AtomicU64::new(0),
        delivered: AtomicU64::new(0),
        takes: AtomicBool::new(true),
        clients: options.clients,
        changed: Notify::new(),
    });
    let mut report = format!(
        "{batches} batches of {bytes} bytes, {} at once\n{:<10} {:<9} {:>10} {:>9} {:>12} {:>14} {:>9}\n",
        options.clients,
        "queue",
        "",
        "batches/s",
        "MB/s",
        "CPU us/batch",
        "written/stored",
        "RSS MiB"
    );
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    if let (Some(folder), Some(queue)) = (&options.leave_in, options.queues.first()) {
        let config = options.configuration(queue, &folder.display().to_string());
        return runtime.block_on(stored_and_killed(&config, work, batches));
    }
    for queue in &options.queues {
        let folder = tempfile::tempdir_in(&options.directory)?;
        let config = options.configuration(queue, &folder.path().display().to_string());
        let deliveries = batches * options.exporters;
        let mut row = |phase: &str, measured: Measured| {
            report.push_str(&measured.row(queue, phase, batches, bytes));
        };
        row(
            "through",
            runtime.block_on(through(&config, work, batches, deliveries))?,
        );
        if queue != "memory" {
            row("stored", runtime.block_on(stored(&config, work, batches))?);
            let (opened, drained) = runtime.block_on(drained(&config, work, deliveries))?;
            row("opened", opened);
            row("drained", drained);
        } else {
            row("stored", runtime.block_on(stored(&config, work, batches))?);
        }
        fs::remove_dir_all(folder.path())?;
    }
    #[expect(clippy::print_stdout, reason = "the report")]
    {
        print!("{report}");
    }
    Ok(())
}

async fn through(
    config: &str,
    work: &'static Work,
    batches: u64,
    deliveries: u64,
) -> anyhow::Result<Measured> {
    work.takes.store(true, Ordering::Relaxed);
    let service = start(config).await?;
    let measure = Measure::begin();
    work.push(batches);
    work.wait(&work.delivered, deliveries).await;
    let measured = measure.end();
    service.stop(Duration::from_secs(10)).await;
    work.reset();
    Ok(measured)
}

async fn stored(config: &str, work: &'static Work, batches: u64) -> anyhow::Result<Measured> {
    work.takes.store(false, Ordering::Relaxed);
    let service = start(config).await?;
    let measure = Measure::begin();
    work.push(batches);
    work.wait(&work.pushed, batches).await;
    let measured = measure.end();
    service.stop(Duration::from_secs(1)).await;
    work.reset();
    Ok(measured)
}

async fn stored_and_killed(config: &str, work: &'static Work, batches: u64) -> anyhow::Result<()> {
    work.takes.store(false, Ordering::Relaxed);
    let _service = start(config).await?;
    work.push(batches);
    work.wait(&work.pushed, batches).await;
    let own_pid = std::process::id().to_string();
    let killed = Command::new("kill").args(["-KILL", &own_pid]).status()?;
    anyhow::bail!("this process outlives its kill: {killed}")
}

async fn drained(
    config: &str,
    work: &'static Work,
    deliveries: u64,
) -> anyhow::Result<(Measured, Measured)> {
    work.takes.store(true, Ordering::Relaxed);
    let measure = Measure::begin();
    let service = start(config).await?;
    let opened = measure.end();
    let measure = Measure::begin();
    work.wait(&work.delivered, deliveries).await;
    let drained = measure.end();
    service.stop(Duration::from_secs(10)).await;
    work.reset();
    Ok((opened, drained))
}

impl Options {
    fn configuration(&self, queue: &str, directory: &str) -> String {
        let storage_of = |exporter: u64| match self.separate {
            true => format!("file_storage/{exporter}"),
            false => "file_storage/0".to_owned(),
        };
        let (mut storages, mut exporters) = (BTreeMap::new(), Vec::new());
        for exporter in 0..self.exporters {
            let id = storage_of(exporter);
            let (storage, fsync) = match queue {
                "memory" => (String::new(), "never"),
                fsync => (format!(", storage: {id}"), fsync),
            };
            exporters.push(format!(
                "otlp_grpc/{exporter}: {{sending_queue: {{queue_size: 100000000{storage}}}}}"
            ));
            let options = format!(
                "{{directory: '{directory}/{id}', fsync: {fsync}, max_bytes: 1099511627776}}"
            );
            storages.insert(id, options);
        }
        let extensions: Vec<String> = storages
            .iter()
            .map(|(id, options)| format!("{id}: {options}"))
            .collect();
        let used: Vec<&str> = storages.keys().map(String::as_str).collect();
        let sinks: Vec<String> = (0..self.exporters)
            .map(|it| format!("otlp_grpc/{it}"))
            .collect();
        format!(
            "{{extensions: {{{}}},
               receivers: {{source: }},
               exporters: {{{}}},
               service: {{extensions: [{}], pipelines: {{profiles: {{receivers: [source], exporters: [{}]}}}}}}}}",
            extensions.join(", "),
            exporters.join(", "),
            used.join(", "),
            sinks.join(", "),
        )
    }
}

async fn start(config: &str) -> anyhow::Result<Service> {
    let input = Input {
        configs: vec![format!("yaml:{config}")],
        sets: Vec::new(),
    };
    let resolved = resolve(&input, &Nothing).map_err(|error| anyhow::anyhow!("{error}"))?;
    let document = Document::read(&resolved.root, &REGISTRY)
        .map_err(|problems| anyhow::anyhow!("{}", problems.report(&resolved.sources)))?;
    let meter = Meter::default();
    let telemetry = SelfTelemetry {
        meter: meter.clone(),
        ..SelfTelemetry::default()
    };
    let graph = Graph::build(&document, &telemetry)?;
    Ok(Service::start(graph, &meter).await?)
}

// === impl Work ===

impl Work {
    fn push(&self, batches: u64) {
        self.to_push.store(batches, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    async fn wait(&self, count: &AtomicU64, batches: u64) {
        while count.load(Ordering::Relaxed) < batches {
            let _ = tokio::time::timeout(Duration::from_millis(5), self.changed.notified()).await;
        }
    }

    fn reset(&self) {
        for count in [&self.to_push, &self.pushed, &self.delivered] {
            count.store(0, Ordering::Relaxed);
        }
    }

    fn next_batch(&self) -> Profiles {
        if !self.varies {
            return self.batch.clone();
        }
        let mut wire = self.batch.to_wire().to_vec();
        // An unknown field with 64 bits.
        wire.extend([0xA1, 0x06]);
        wire.extend(self.to_push.load(Ordering::Relaxed).to_le_bytes());
        let read = Profiles::from_wire(wire.into(), Validation::Reject);
        read.map_or_else(|_| self.batch.clone(), |read| read.profiles)
    }

    /// Whether there is another batch to push.
    fn take(&self) -> bool {
        let less = |left: u64| left.checked_sub(1);
        let order = Ordering::Relaxed;
        self.to_push.fetch_update(order, order, less).is_ok()
    }
}

// === what is measured ===

struct Measure {
    began: Instant,
    cpu: f64,
    written: u64,
}

struct Measured {
    seconds: f64,
    cpu: f64,
    written: u64,
    rss: u64,
}

impl Measure {
    fn begin() -> Self {
        Self {
            began: Instant::now(),
            cpu: cpu_seconds(),
            written: field_of("/proc/self/io", "write_bytes:"),
        }
    }

    fn end(self) -> Measured {
        Measured {
            seconds: self.began.elapsed().as_secs_f64(),
            cpu: cpu_seconds() - self.cpu,
            written: field_of("/proc/self/io", "write_bytes:") - self.written,
            rss: field_of("/proc/self/status", "VmRSS:") / 1024,
        }
    }
}

impl Measured {
    fn row(&self, queue: &str, phase: &str, batches: u64, bytes: u64) -> String {
        let per_second = batches as f64 / self.seconds;
        let amplification = self.written as f64 / (batches * bytes) as f64;
        format!(
            "{queue:<10} {phase:<9} {per_second:>10.0} {:>9.0} {:>12.1} {amplification:>14.2} {:>9}\n",
            per_second * bytes as f64 / 1e6,
            self.cpu * 1e6 / batches as f64,
            self.rss
        )
    }
}

/// User and system CPU time of this process.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind_name = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = behind_name.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    // A tick is 10 ms on every Linux in use.
    (ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / 100.0
}

fn field_of(path: &str, key: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or(0)
}

// === the components ===

struct Source;
struct Sink(Delivery);

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
struct SourceConfig {}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default)]
struct SinkConfig {
    #[serde(flatten)]
    delivery: DeliverySettings,
}

impl Config for SourceConfig {}

impl Config for SinkConfig {
    fn validate(&self, problems: &mut Problems) {
        self.delivery.validate(problems);
    }
}

impl Factory for Source {
    const NAME: &'static str = "source";
    type Config = SourceConfig;
    type Component = dyn Receiver;

    fn build(_: &SourceConfig, _: &BuildContext) -> Result<Box<dyn Receiver>, BuildError> {
        Ok(Box::new(Self))
    }
}

impl Factory for Sink {
    /// Of an exporter that continues with what is left.
    const NAME: &'static str = "otlp_grpc";
    type Config = SinkConfig;
    type Component = dyn Exporter;

    fn build(config: &SinkConfig, _: &BuildContext) -> Result<Box<dyn Exporter>, BuildError> {
        Ok(Box::new(Self(config.delivery.delivery())))
    }
}

#[async_trait]
impl Receiver for Source {
    async fn run(self: Box<Self>, output: Output, stop: Stop) -> Result<(), RunError> {
        let Some(work) = WORK.get() else {
            return Ok(());
        };
        let mut clients = JoinSet::new();
        for _ in 0..work.clients {
            let (output, stop) = (output.clone(), stop.clone());
            clients.spawn(async move {
                while !stop.is_cancelled() {
                    while work.take() {
                        if output.push(Batch::new(work.next_batch())).await.is_ok() {
                            work.pushed.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    tokio::select! {
                        () = work.changed.notified() => {}
                        () = tokio::time::sleep(Duration::from_millis(2)) => {}
                        () = stop.cancelled() => {}
                    }
                }
            });
        }
        while let Some(ended) = clients.join_next().await {
            ended.map_err(RunError::new)?;
        }
        Ok(())
    }
}

#[async_trait]
impl Exporter for Sink {
    fn delivery(&self) -> Delivery {
        self.0.clone()
    }

    async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        let Some(work) = WORK.get() else {
            return Err(Refusal::retry("no work"));
        };
        if !work.takes.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        // Encode the batch as a real exporter would.
        let _ = std::hint::black_box(batch.profiles.to_wire());
        work.delivered.fetch_add(1, Ordering::Relaxed);
        Ok(Delivered::default())
    }
}

const REGISTRY: Registry = Registry {
    receivers: &[entry::<Source>()],
    processors: &[],
    exporters: &[entry::<Sink>()],
    connectors: &[],
    extensions: profcol_extensions::ALL,
    foreign: &[],
};

/// The configuration refers to nothing.
struct Nothing;

impl ConfigProviders for Nothing {
    fn env(&self, _: &str) -> Result<Option<String>, ProviderError> {
        Ok(None)
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, ProviderError> {
        Err(ProviderError::Open {
            path: path.to_owned(),
            error: std::io::ErrorKind::NotFound.into(),
        })
    }

    fn fetch(&self, _: &str) -> Result<Vec<u8>, ProviderError> {
        Err(ProviderError::NoClient)
    }
}
