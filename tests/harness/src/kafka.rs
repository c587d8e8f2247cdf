//! Real Kafka brokers, on loopback. `cargo xtask peers` fetches them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use krafka::admin::{
    CreateTopicsOptions, DescribeTopicsOptions, ListOffsetsOptions, NewTopic, OffsetSpec,
    TopicPartition,
};
use krafka::error::KrafkaError;
use krafka::{Kafka, Record};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::peers::free_address;
use crate::support::{skip, target};

/// A JVM under load starts slowly.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A broker that is also its cluster's controller. Dropping it kills it.
pub struct Broker {
    /// For clients.
    pub address: SocketAddr,
    directory: TempDir,
    process: Option<Child>,
    runtime: Runtime,
}

/// More settings of a broker.
#[derive(Default)]
pub struct Settings<'a> {
    /// Lines of `server.properties`.
    pub properties: &'a str,
    /// Arguments of the command that formats its directory.
    pub format: &'a [&'a str],
    /// Where its data is, unless in a temporary directory.
    pub logs: Option<&'a Path>,
    /// Listens there with TLS and SASL, too.
    pub secure: Option<SocketAddr>,
}

impl Broker {
    /// `None`, reported as a skip, if there is no broker to start.
    pub fn start() -> Option<Self> {
        Self::with(&Settings::default())
    }

    pub fn with(settings: &Settings<'_>) -> Option<Self> {
        Self::node(1, free_address(), settings)
    }

    /// A cluster of three, whose topics have three replicas. The first is the controller.
    pub fn three() -> Option<[Self; 3]> {
        let controller = free_address();
        let settings = Settings {
            properties: "offsets.topic.replication.factor=3\n\
                         default.replication.factor=3\n\
                         min.insync.replicas=2",
            ..Settings::default()
        };
        let node = |number| Self::node(number, controller, &settings);
        Some([node(1)?, node(2)?, node(3)?])
    }

    fn node(number: u32, controller: SocketAddr, settings: &Settings<'_>) -> Option<Self> {
        if !target().join("peers/kafka").exists() {
            skip("no Kafka in target/peers: `cargo xtask peers` fetches it with Java and Maven");
            return None;
        }
        let address = free_address();
        let directory = TempDir::new().expect("can create a temporary directory");
        let logs = directory.path().join("logs");
        let logs = settings.logs.unwrap_or(&logs).display();
        let (mut listeners, mut advertised) = (
            format!("PLAINTEXT://{address}"),
            format!("PLAINTEXT://{address}"),
        );
        if let Some(secure) = settings.secure {
            listeners += &format!(",SASL_SSL://{secure}");
            advertised += &format!(",SASL_SSL://localhost:{}", secure.port());
        }
        let mut roles = "broker";
        if number == 1 {
            listeners += &format!(",CONTROLLER://{controller}");
            roles = "broker,controller";
        }
        let properties = format!(
            "process.roles={roles}\n\
             node.id={number}\n\
             controller.quorum.voters=1@{controller}\n\
             listeners={listeners}\n\
             advertised.listeners={advertised}\n\
             controller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL\n\
             inter.broker.listener.name=PLAINTEXT\n\
             log.dirs={logs}\n\
             num.partitions=3\n\
             offsets.topic.num.partitions=1\n\
             offsets.topic.replication.factor=1\n\
             transaction.state.log.replication.factor=1\n\
             transaction.state.log.min.isr=1\n\
             share.coordinator.state.topic.replication.factor=1\n\
             share.coordinator.state.topic.min.isr=1\n\
             group.initial.rebalance.delay.ms=0\n\
             group.min.session.timeout.ms=1000\n\
             broker.session.timeout.ms=3000\n\
             broker.heartbeat.interval.ms=500\n\
             log.cleaner.dedupe.buffer.size=2097152\n\
             {}\n",
            settings.properties
        );
        let file = directory.path().join("server.properties");
        fs::write(&file, properties).expect("can write a temporary file");
        let formatted = java("kafka.tools.StorageTool", directory.path())
            .args(["format", "-t", "AAAAAAAAAAAAAAAAAAAAAA", "-c"])
            .arg(&file)
            .args(settings.format)
            .status();
        let is_formatted = formatted.is_ok_and(|status| status.success());
        assert!(is_formatted, "{}", output(directory.path()));
        let mut broker = Self {
            address,
            directory,
            process: None,
            runtime: Runtime::new().expect("threads can be started"),
        };
        broker.launch();
        broker.wait();
        Some(broker)
    }

    /// Starts it again, after a [`kill`](Self::kill), with the data that it had.
    pub fn launch(&mut self) {
        let mut command = java("kafka.Kafka", self.directory.path());
        let command = command.arg(self.directory.path().join("server.properties"));
        self.process = Some(command.spawn().expect("java starts"));
    }

    /// Waits until it answers.
    pub fn wait(&mut self) {
        let give_up = Instant::now() + TIMEOUT;
        while self.client().is_err() {
            let process = self.process.as_mut().expect("it was started");
            let has_ended = process.try_wait().expect("it is our child").is_some();
            assert!(
                !has_ended && Instant::now() < give_up,
                "the broker does not answer; it said:\n{}",
                output(self.directory.path())
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("it is our child");
            process.wait().expect("it is our child");
        }
    }

    /// With as many replicas as the cluster's topics have.
    pub fn create_topic(&self, name: &str, partitions: i32) {
        let topic = NewTopic::new(name, partitions, -1).expect("a valid topic");
        let client = self.client().expect("the broker answers");
        let admin = client.admin();
        let creating = admin.create_topics([topic], CreateTopicsOptions::default());
        let created = self.runtime.block_on(creating).expect("the broker answers");
        for (topic, created) in created {
            created.unwrap_or_else(|error| panic!("{topic}: {error}"));
        }
    }

    /// The number of messages in each partition of a topic.
    pub fn messages(&self, topic: &str, partitions: i32) -> BTreeMap<i32, i64> {
        let client = self.client().expect("the broker answers");
        let ends = (0..partitions).map(|it| (TopicPartition::new(topic, it), OffsetSpec::Latest));
        let admin = client.admin();
        let listing = admin.list_offsets(ends, ListOffsetsOptions::default());
        let listed = self.runtime.block_on(listing).expect("the broker answers");
        let messages = listed.into_iter().map(|(partition, listed)| {
            let end = listed.expect("the partition has a leader").offset;
            (partition.partition, end)
        });
        messages.collect()
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        let process = self.process.as_mut();
        process.is_none_or(|process| process.try_wait().expect("it is our child").is_some())
    }

    /// Sends a message as it is.
    pub fn send(&self, topic: &str, value: &[u8]) {
        let sent = self.try_send(topic, value);
        sent.expect("the broker takes the message");
    }

    /// Sends a message as it is, without many attempts.
    pub fn try_send(&self, topic: &str, value: &[u8]) -> Result<(), KrafkaError> {
        let client = self.client()?;
        let record = Record::new(topic, value.to_vec());
        let timeout = Duration::from_secs(15);
        self.runtime.block_on(async {
            let producer = client.producer().delivery_timeout(timeout);
            let producer = producer.build().await?;
            let sent = producer.send(record).await;
            producer.close().await?;
            sent.map(|_| ())
        })
    }

    /// Whether each partition of a topic has this many replicas in sync.
    pub fn are_in_sync(&self, topic: &str, replicas: usize) -> bool {
        let client = self.client().expect("the broker answers");
        let admin = client.admin();
        let describing = admin.describe_topics([topic], DescribeTopicsOptions::default());
        let mut described = self
            .runtime
            .block_on(describing)
            .expect("the broker answers");
        let topic = described.remove(topic).expect("it was asked for");
        let topic = topic.expect("the topic exists");
        let mut partitions = topic.partitions.iter();
        partitions.all(|partition| partition.isr.len() == replicas)
    }

    fn client(&self) -> Result<Kafka, KrafkaError> {
        let timeout = Duration::from_secs(10);
        let connecting = Kafka::builder(self.address.to_string())
            .request_timeout(timeout)
            .connect_timeout(timeout)
            .allow_auto_create_topics(true)
            .connect();
        self.runtime.block_on(connecting)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A small JVM that runs this class, with its output in the directory.
fn java(class: &str, directory: &Path) -> Command {
    let log = File::options()
        .create(true)
        .append(true)
        .open(directory.join("output"));
    let log = log.expect("can write a temporary file");
    let mut command = Command::new("java");
    command
        .args(["-Xmx256m", "-Xms64m", "-XX:+UseSerialGC"])
        .args(["-XX:TieredStopAtLevel=1", "-cp"])
        .arg(target().join("peers/kafka/*"))
        .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        .arg(class)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a file handle can be doubled"))
        .stderr(log);
    command
}

fn output(directory: &Path) -> String {
    fs::read_to_string(directory.join("output")).unwrap_or_default()
}
