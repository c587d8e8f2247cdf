//! Compares whole processes: samples forwarded per CPU second, and memory use.
//!
//! A forwarder receives OTLP on loopback and sends it on over gRPC, from a client to a sink, by default third-party
//! programs: grpc-go and a Collector. This program starts them, and the contestants in turn (A B A B …), each as a
//! fresh process with the same configuration. Only the forwarder's own CPU time counts (from `/proc/PID/stat`), so load
//! and sink may run on the same machine. After each run the sink must have received exactly the samples that were
//! acknowledged to the client.
//!
//! With `--stored-in` it compares sending queues on disk and in memory the same way (the module `stored`), with `--kafka` the exporters
//! and receivers of Kafka.
//!
//! `cargo run --release -p profcol-benches --bin forward -- --help`

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is a command-line tool; its report is its output"
)]

mod forwarder;
mod kafka;
mod load;
mod options;
mod processes;
mod program;
mod report;
mod sink;
mod stored;
mod trial;
mod wire;

use anyhow::Result;
use clap::Parser;

use crate::options::Options;
use crate::report::Row;

fn main() -> Result<()> {
    let options = Options::parse();
    if let Some(directory) = &options.stored_in {
        return stored::run(directory, &options);
    }
    if options.kafka {
        return kafka::run(&options);
    }
    println!("{}", report::HEADER);
    for case in options.cases() {
        let mut row = Row::default();
        for round in 1..=options.rounds {
            for (contestant, results) in [
                (&options.collector, &mut row.collector),
                (&options.profcol, &mut row.profcol),
            ] {
                let result = trial::run(contestant, &case, &options)?;
                eprintln!("{case}, round {round}, {contestant}: {result}");
                results.push(result);
            }
        }
        println!("{}", row.to_markdown(&case));
    }
    Ok(())
}
