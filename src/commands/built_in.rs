//! The configuration of `profcol` without `--config`, and what it prints.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;

use profcol_component::Capabilities;
use profcol_printable::line;
use profcol_processes::has_own_pid_namespace;
use serde_json::{Map, Value, json};

use crate::cli::Configuration;
use crate::privileges;
use crate::stderr::print;

const PROFILE_HOST: &str = include_str!("../../config-examples/laptop.yaml");

/// Merged into it if `OUTPUT` is set.
const PPROF_FILES: &str = "\
exporters:
  pprof_file:
    directory: ${env:OUTPUT}
    interval: 30s
service:
  pipelines:
    profiles:
      exporters: [live_view, pprof_file, top]
";

/// Merged into it if this process may not profile. The page and the list of the hottest functions work for profiles of others.
fn receive_only(protocols: &[Protocol]) -> String {
    let protocols = protocols.iter().map(|it| (it.name.to_owned(), Value::Null));
    let configuration = json!({
        "receivers": { "otlp": { "protocols": protocols.collect::<Map<_, _>>() } },
        "service": { "pipelines": { "profiles": { "receivers": ["otlp"], "processors": [] } } },
    });
    configuration.to_string()
}

/// How `profcol` runs without a configuration.
pub struct BuiltIn {
    /// The capabilities that profiling needs and this process lacks.
    missing: Capabilities,
    /// In this case, the OTLP protocols whose usual port is free.
    protocols: Vec<Protocol>,
    /// The directory for pprof files.
    output: Option<String>,
}

#[derive(Clone, Copy)]
struct Protocol {
    name: &'static str,
    port: u16,
}

const PROTOCOLS: [Protocol; 2] = [
    Protocol {
        name: "grpc",
        port: 4317,
    },
    Protocol {
        name: "http",
        port: 4318,
    },
];

impl Protocol {
    fn is_free(&self) -> bool {
        TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).is_ok()
    }
}

impl BuiltIn {
    /// What a process with all capabilities does.
    pub fn for_profiling() -> Self {
        Self {
            missing: Capabilities::NONE,
            protocols: Vec::new(),
            output: std::env::var("OUTPUT").ok().filter(|it| !it.is_empty()),
        }
    }

    /// What this process can do.
    pub fn for_this_process() -> Self {
        let missing = privileges::missing_to_profile();
        let protocols = match missing.is_empty() {
            true => Vec::new(),
            false => PROTOCOLS.into_iter().filter(Protocol::is_free).collect(),
        };
        Self {
            missing,
            protocols,
            ..Self::for_profiling()
        }
    }

    /// The options of the command line, with this configuration.
    pub fn configuration(&self, options: &Configuration) -> Configuration {
        Configuration {
            uris: self.uris(),
            ..options.clone()
        }
    }

    fn uris(&self) -> Vec<String> {
        let mut documents = vec![PROFILE_HOST.to_owned()];
        if self.only_receives() {
            documents.push(receive_only(&self.protocols));
        }
        if self.output.is_some() {
            documents.push(PPROF_FILES.to_owned());
        }
        documents
            .iter()
            .map(|yaml| format!("yaml:{yaml}"))
            .collect()
    }

    /// Whether it only receives. Without a free port it has nothing to show: then the receiver that cannot start says why.
    fn only_receives(&self) -> bool {
        !self.protocols.is_empty()
    }

    pub fn log_missing(&self) {
        if self.only_receives() {
            tracing::warn!(missing = %self.missing, "Cannot profile this host. Run profcol as root.");
        }
    }

    /// Printed once everything has started.
    pub fn introduce(&self, page: Option<SocketAddr>) {
        let source = match self.only_receives() {
            true => format!(
                "profcol shows profiles that it receives over OTLP, on {}.",
                self.ports()
            ),
            false => {
                let machine = match has_own_pid_namespace(Path::new("/")) {
                    true => "PID namespace",
                    false => "host",
                };
                format!("profcol samples every process of this {machine} 99 times a second.")
            }
        };
        let page = page.map_or_else(String::new, |address| {
            format!("Flame graphs of the last hour, live:  http://{address}/\n")
        });
        let files = self.output.as_deref().map_or_else(String::new, |directory| {
            let directory = line(directory);
            format!(
                "It writes a profile to {directory} every thirty seconds; open them all with: go tool pprof -http=: {directory}/*.pb.gz\n"
            )
        });
        print(&format!(
            "{source}
{page}The hottest functions follow every ten seconds.
{files}Something is missing?  profcol doctor
Stop it with Ctrl-C. One file instead: profcol record; pipelines of your own: profcol --config FILE
",
        ));
    }

    fn ports(&self) -> String {
        let ports = self.protocols.iter();
        let ports = ports.map(|it| format!("port {} ({})", it.port, it.name));
        ports.collect::<Vec<_>>().join(" and ")
    }

    /// Printed when the stop begins. Writing the last profile takes a moment.
    pub fn announce_stop(&self) {
        print(match self.output {
            Some(_) => "writing...\n",
            None => "stopping...\n",
        });
    }
}
