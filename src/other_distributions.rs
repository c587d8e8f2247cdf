//! Components of other distributions and their replacements here, for migrated configurations.
//!
//! Names follow the Collector's and Grafana Alloy's documentation, with and without underscores where both are used.
//! The text becomes the `help` of the problem: it names the replacement, or says there is none.

use profcol_component::ForeignComponent;
use profcol_component::Kind::{self, Connector, Exporter, Extension, Processor, Receiver};

const LOGS: &str =
    "it is for logs, and profcol supports only profiles; run a Collector alongside profcol";
const METRICS: &str =
    "it is for metrics, and profcol supports only profiles; run a Collector alongside profcol";
const TRACES: &str =
    "it is for traces, and profcol supports only profiles; run a Collector alongside profcol";
const STATEMENTS: &str = "profcol has no OTTL; `attributes`, `resource` and `relabel` change attributes, `filter` drops samples";
const BY_OTLP: &str =
    "profcol does not have it; if the backend accepts OTLP, use `otlp_grpc` or `otlp_http`";
const BROKER: &str = "Kafka (`kafka`) is the only supported message broker; send profiles there, or over OTLP (`otlp_grpc`, `otlp_http`)";
const ON_DISK: &str = "`file_storage` stores queues on disk";
const DISCOVERY: &str =
    "profcol discovers no scrape targets; `ebpf_cpu` profiles every process of its host";

/// For builds without default features.
#[cfg(not(feature = "ebpf_cpu"))]
const NO_EBPF: &str = "this binary was built without the feature `ebpf_cpu`";
#[cfg(not(feature = "k8s_attributes"))]
const NO_KUBERNETES: &str = "this binary was built without the feature `k8s_attributes`";
#[cfg(not(feature = "kafka"))]
const NO_KAFKA: &str = "this binary was built without the feature `kafka`";
#[cfg(not(feature = "parca"))]
const NO_PARCA: &str = "this binary was built without the feature `parca`";

pub const FOREIGN_COMPONENTS: &[ForeignComponent] = &[
    // Receivers.
    #[cfg(not(feature = "ebpf_cpu"))]
    receiver(&["ebpf_cpu"], NO_EBPF),
    #[cfg(not(feature = "kafka"))]
    receiver(&["kafka"], NO_KAFKA),
    #[cfg(not(feature = "parca"))]
    receiver(&["parca", "padata"], NO_PARCA),
    #[cfg(not(feature = "k8s_attributes"))]
    processor(&["k8s_attributes", "k8sattributes"], NO_KUBERNETES),
    #[cfg(not(feature = "kafka"))]
    exporter(&["kafka"], NO_KAFKA),
    #[cfg(not(feature = "parca"))]
    exporter(&["parca", "padata"], NO_PARCA),
    receiver(
        &["profiling", "ebpf_profiler"],
        "use `ebpf_cpu` to profile this host; config-examples/migrate-otel-profiler.yaml maps the options",
    ),
    receiver(
        &["pprof"],
        "profcol writes pprof (`pprof_file`) but does not receive it; use `otlp` to receive OTLP profiles",
    ),
    receiver(
        &["pyroscope", "parca_agent"],
        "`ebpf_cpu` profiles this host; `parca` receives from Parca Agents, `otlp` receives OTLP profiles",
    ),
    receiver(
        &["otelarrow", "otel_arrow"],
        "OTel Arrow does not support profiles; receive them with `otlp`",
    ),
    receiver(
        &[
            "filelog",
            "file_log",
            "journald",
            "syslog",
            "fluentforward",
            "fluent_forward",
            "tcplog",
            "tcp_log",
            "udplog",
            "udp_log",
            "windowseventlog",
            "k8s_events",
            "k8sobjects",
            "k8s_objects",
            "loki",
            "webhookevent",
        ],
        LOGS,
    ),
    receiver(
        &[
            "hostmetrics",
            "host_metrics",
            "prometheus",
            "prometheus_simple",
            "prometheusremotewrite",
            "kubeletstats",
            "kubelet_stats",
            "k8s_cluster",
            "dockerstats",
            "docker_stats",
            "podman_stats",
            "statsd",
            "collectd",
            "carbon",
            "influxdb",
            "httpcheck",
            "http_check",
            "redis",
            "postgresql",
            "mysql",
            "nginx",
            "snmp",
            "sqlquery",
            "filestats",
        ],
        METRICS,
    ),
    receiver(
        &[
            "jaeger",
            "zipkin",
            "opencensus",
            "skywalking",
            "datadog",
            "awsxray",
            "aws_xray",
        ],
        TRACES,
    ),
    receiver(&["receiver_creator"], DISCOVERY),
    // Processors.
    processor(&["transform"], STATEMENTS),
    processor(
        &["redaction"],
        "profcol does not have it; `attributes` and `resource` delete and hash attributes, `relabel` drops labels",
    ),
    processor(
        &["tail_sampling", "tailsampling", "groupbytrace"],
        "it samples whole traces; `probabilistic_sampler` samples profiles, `filter` selects them",
    ),
    processor(
        &["queuebatch", "queue_batch"],
        "`batch` merges batches in a pipeline, and `sending_queue` of each exporter queues them",
    ),
    processor(
        &["span", "spanmetrics", "servicegraph", "isolationforest"],
        TRACES,
    ),
    processor(
        &[
            "metricstransform",
            "metrics_transform",
            "cumulativetodelta",
            "deltatocumulative",
            "deltatorate",
            "metricsgeneration",
            "metricstarttime",
            "interval",
        ],
        METRICS,
    ),
    processor(&["logdedup", "log_dedup", "logstransform"], LOGS),
    processor(
        &["remotetap", "remote_tap"],
        "profcol does not have it; use the `debug` exporter to inspect data",
    ),
    processor(
        &["geoip", "schema", "sumologic", "coralogix", "unroll"],
        "profcol does not have it; `attributes`, `resource` and `relabel` change attributes",
    ),
    // Exporters.
    exporter(&["logging"], "replaced by `debug`, as in the Collector"),
    exporter(&["pprof"], "`pprof_file` writes pprof files"),
    exporter(&["pulsar", "rabbitmq"], BROKER),
    exporter(
        &["otelarrow", "otel_arrow"],
        "OTel Arrow does not support profiles; send them with `otlp_grpc`",
    ),
    exporter(
        &[
            "pyroscope",
            "elasticsearch",
            "clickhouse",
            "coralogix",
            "datadog",
            "splunk_hec",
            "honeycomb",
            "dynatrace",
            "signalfx",
            "sumologic",
            "azuremonitor",
            "googlecloud",
            "opensearch",
        ],
        BY_OTLP,
    ),
    exporter(
        &[
            "awss3",
            "aws_s3",
            "azureblob",
            "azure_blob",
            "googlecloudstorage",
        ],
        "profcol does not write to object stores; `pprof_file`, `padata` and `file` write files",
    ),
    exporter(
        &[
            "prometheus",
            "prometheusremotewrite",
            "prometheus_remote_write",
            "awsemf",
            "carbon",
            "influxdb",
        ],
        METRICS,
    ),
    exporter(
        &["jaeger", "zipkin", "awsxray", "aws_xray", "opencensus"],
        TRACES,
    ),
    exporter(&["loki", "syslog", "awscloudwatchlogs"], LOGS),
    // Connectors.
    connector(
        &[
            "count",
            "exceptions",
            "grafanacloud",
            "sum",
            "signaltometrics",
            "signal_to_metrics",
            "servicegraph",
            "service_graph",
            "spanmetrics",
            "span_metrics",
        ],
        METRICS,
    ),
    // Extensions.
    extension(
        &["healthcheckv2", "health_check_v2"],
        "`health_check` reports component status, too",
    ),
    extension(
        &["pprof"],
        "profcol does not serve its own profiles over HTTP; `ebpf_cpu` profiles it like any other process",
    ),
    extension(&["filestorage", "db_storage", "redis_storage"], ON_DISK),
    extension(
        &["memory_ballast", "ballast"],
        "profcol has no garbage collector to tune; `memory_limiter` bounds memory",
    ),
    extension(
        &["headers_setter"],
        "profcol does not have it; `headers` of each exporter sets fixed ones",
    ),
    extension(
        &[
            "oauth2client",
            "oidc",
            "sigv4auth",
            "asapclient",
            "googleclientauth",
            "azureauth",
        ],
        "profcol does not have it; use `basicauth` or `bearertokenauth`",
    ),
    extension(
        &["opamp"],
        "profcol does not support remote configuration; `--config https://…` reads one at start",
    ),
    extension(
        &[
            "host_observer",
            "docker_observer",
            "k8s_observer",
            "ecs_observer",
        ],
        DISCOVERY,
    ),
];

const fn receiver(names: &'static [&'static str], instead: &'static str) -> ForeignComponent {
    foreign(Receiver, names, instead)
}

const fn processor(names: &'static [&'static str], instead: &'static str) -> ForeignComponent {
    foreign(Processor, names, instead)
}

const fn exporter(names: &'static [&'static str], instead: &'static str) -> ForeignComponent {
    foreign(Exporter, names, instead)
}

const fn connector(names: &'static [&'static str], instead: &'static str) -> ForeignComponent {
    foreign(Connector, names, instead)
}

const fn extension(names: &'static [&'static str], instead: &'static str) -> ForeignComponent {
    foreign(Extension, names, instead)
}

const fn foreign(
    kind: Kind,
    names: &'static [&'static str],
    instead: &'static str,
) -> ForeignComponent {
    ForeignComponent {
        kind,
        names,
        instead,
    }
}

#[cfg(test)]
mod tests {
    /// A feature of an option, not of a component.
    const OF_AN_OPTION: &str = "k8s_resolver";

    #[test]
    fn a_build_without_a_component_names_the_feature() {
        let manifest = include_str!("../Cargo.toml");
        let (_, features) = manifest.split_once("\n[features]\n").unwrap();
        let (features, _) = features.split_once("\n[").unwrap();
        let features = features.lines().filter_map(|line| line.split_once(" = ["));
        let mut optional: Vec<&str> = features.map(|(name, _)| name).collect();
        optional.retain(|name| !["default", OF_AN_OPTION].contains(name));
        assert!(optional.contains(&"kafka"), "{optional:?}");
        for feature in optional {
            let row = format!("    #[cfg(not(feature = \"{feature}\"))]\n    ");
            assert!(
                include_str!("other_distributions.rs").contains(&row),
                "{feature}"
            );
        }
    }
}
