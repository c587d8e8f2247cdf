//! A Collector with the `nop` exporter; its own metrics tell what it has received.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, ensure};

use super::Received;
use crate::program::{self, Program};

const PROGRAM: &str = "target/peers/otelcol";
const SAMPLES: &str = "otelcol_receiver_accepted_profile_samples";

pub struct Sink {
    pub address: SocketAddr,
    metrics: SocketAddr,
    _program: Program,
}

impl Sink {
    pub fn start() -> Result<Self> {
        let (address, metrics) = (program::free_address()?, program::free_address()?);
        let configuration = configuration(address, metrics);
        Ok(Self {
            address,
            metrics,
            _program: Program::start(PROGRAM, &configuration, address)?,
        })
    }

    pub fn received(&self) -> Result<Received> {
        let metrics = self
            .scrape()
            .context("failed to read the metrics of the sink")?;
        Ok(Received {
            samples: sum(&metrics, SAMPLES)?,
            messages: None,
        })
    }

    fn scrape(&self) -> Result<String> {
        let mut stream = TcpStream::connect(self.metrics)?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        ensure!(
            response
                .lines()
                .next()
                .unwrap_or_default()
                .contains(" 200 "),
            "response:\n{response}"
        );
        Ok(response)
    }
}

/// The sum over all series of a counter; 0 if there are none yet.
fn sum(metrics: &str, name: &str) -> Result<u64> {
    let series = metrics.lines().filter(|line| line.starts_with(name));
    let values = series.map(|line| {
        let value: f64 = line.rsplit(' ').next().unwrap_or_default().parse()?;
        Ok(value as u64)
    });
    let values: Result<Vec<u64>> = values.collect();
    Ok(values
        .with_context(|| format!("no number after {name}"))?
        .iter()
        .sum())
}

fn configuration(listen: SocketAddr, metrics: SocketAddr) -> String {
    let (host, port) = (metrics.ip(), metrics.port());
    format!(
        "\
receivers:
  otlp:
    protocols:
      grpc: {{endpoint: '{listen}', max_recv_msg_size_mib: 64}}
exporters:
  nop:
service:
  telemetry:
    metrics:
      level: normal
      readers: [{{pull: {{exporter: {{prometheus: {{host: '{host}', port: {port}}}}}}}}}]
    logs: {{level: warn}}
  pipelines:
    profiles:
      receivers: [otlp]
      exporters: [nop]
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_up_the_series_of_a_counter() {
        let metrics = "# TYPE accepted counter\n\
                       accepted_total{transport=\"grpc\"} 1.2e+06\naccepted_total{transport=\"http\"} 5\nother 7\n";
        assert_eq!(sum(metrics, "accepted").unwrap(), 1_200_005);
        assert_eq!(sum(metrics, "refused").unwrap(), 0);
    }
}
