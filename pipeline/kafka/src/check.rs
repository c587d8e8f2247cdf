//! Checks a cluster for `profcol doctor`: asks each of its brokers about the cluster, and about a topic.

use std::time::Duration;

use krafka::Kafka;
use krafka::admin::{DescribeClusterOptions, DescribeTopicsOptions};
use krafka::error::{ErrorCode, KrafkaError};
use profcol_component::Check;

use crate::{ClientSettings, Error};

/// Below the time limit of a check, so that the error names the slow step.
const TIMEOUT: Duration = Duration::from_secs(4);

const CLUSTER: &str = "cluster";
const BROKER: &str = "broker";
const PASSWORD: &str = "password";
const TOPIC: &str = "topic";
const NOT_REACHED: &str = "profiles are not exchanged with the cluster";
const CHECK_LOG: &str = "check the broker's log";

/// Connects like the component, then to each broker that the cluster has.
pub async fn check_cluster(settings: &ClientSettings) -> Result<(Kafka, Vec<Check>), Vec<Check>> {
    let addresses = settings.addresses();
    let kafka = match connect(settings).await {
        Ok(kafka) => kafka,
        Err(error) => return Err(vec![failed(CLUSTER, &addresses, &error)]),
    };
    let options = DescribeClusterOptions::default().timeout(TIMEOUT);
    let brokers = match kafka.admin().describe_cluster(options).await {
        Ok(cluster) => cluster.brokers,
        Err(error) => return Err(vec![failed(CLUSTER, &addresses, &error.into())]),
    };
    let found = format!("{addresses}: {} brokers", brokers.len());
    let mut checks = vec![Check::new(CLUSTER, found)];
    if settings.exposes_password() {
        checks.push(
            Check::new(
                PASSWORD,
                "`auth::sasl` has the mechanism PLAIN, without TLS",
            )
            .warn(
                "anyone who can observe the connection can read the password",
                "add a section `tls`, or use a SCRAM mechanism",
            ),
        );
    }
    for broker in brokers {
        let address = format!("{}:{}", broker.host, broker.port);
        let only = ClientSettings {
            brokers: vec![address.clone()],
            ..settings.clone()
        };
        checks.push(match connect(&only).await {
            Ok(_) => Check::new(BROKER, format!("{address} answers")),
            Err(error) => failed(BROKER, &address, &error),
        });
    }
    Ok((kafka, checks))
}

/// Whether a topic exists; `is_created` if the component asks the broker to create it.
pub async fn check_topic(kafka: &Kafka, topic: &str, is_created: bool) -> Check {
    let options = DescribeTopicsOptions::default().timeout(TIMEOUT);
    let described = kafka.admin().describe_topics([topic], options).await;
    let described = described.and_then(|mut topics| {
        let missing = || {
            Err(KrafkaError::UnknownTopic {
                topic: topic.to_owned(),
            })
        };
        topics.remove(topic).unwrap_or_else(missing)
    });
    let error = match described {
        Ok(description) => {
            let partitions = description.partitions.len();
            return Check::new(TOPIC, format!("{topic} has {partitions} partitions"));
        }
        Err(error) => error,
    };
    let is_missing = matches!(
        error,
        KrafkaError::UnknownTopic { .. }
            | KrafkaError::Broker {
                code: ErrorCode::UnknownTopicOrPartition,
                ..
            }
    );
    match (is_missing, is_created) {
        (true, true) => Check::new(TOPIC, format!("{topic} does not exist yet")),
        (true, false) => Check::new(TOPIC, format!("{topic} does not exist")).warn(
            "no profiles are exchanged until it does",
            "create the topic, or correct its name",
        ),
        (false, _) => failed(TOPIC, topic, &error.into()),
    }
}

async fn connect(settings: &ClientSettings) -> Result<Kafka, Error> {
    let connecting = settings.connect(TIMEOUT, |builder| builder);
    match tokio::time::timeout(TIMEOUT, connecting).await {
        Ok(connected) => connected,
        Err(elapsed) => Err(KrafkaError::from(elapsed).into()),
    }
}

fn failed(check: &str, subject: &str, error: &Error) -> Check {
    let fix = error.fix().unwrap_or(CHECK_LOG);
    Check::new(check, format!("{subject}: {}", error.problem())).fail(NOT_REACHED, fix)
}
