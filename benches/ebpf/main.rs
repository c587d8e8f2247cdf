//! The cost of the eBPF receiver: kernel time per sample, CPU and memory of the process.
//!
//! For each workload and frequency it starts profcol with an exporter that discards everything and observes it for a
//! while. Three more programs run on the same clock: one that does nothing, which measures the kernel's own counting,
//! one that counts the ticks on busy CPUs, which are the expected samples, and one that makes the kernel walk the
//! user's frame pointers. `perf record` follows under the same load.
//!
//! `cargo xtask bench ebpf --help`

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is a command-line tool; its report is its output"
)]

mod agent;
mod bpf;
mod cold;
mod floor;
mod languages;
mod long;
mod options;
mod own;
mod perf;
mod recording;
mod report;
mod storm;
mod trial;
mod workload;

use std::time::Duration;

use anyhow::Result;
use clap::Parser;

use crate::options::{Options, Workload};
use crate::perf::CallGraph;
use crate::report::Report;
use crate::workload::Programs;

fn main() -> Result<()> {
    let options = Options::parse();
    let _stats = bpf::Stats::enable()?;
    if !options.languages.is_empty() {
        println!("{}", languages::run(&options)?);
        return Ok(());
    }
    let programs = Programs::build(&options.workloads)?;
    if let (Some(minutes), Some(&workload), Some(&frequency)) = (
        options.soak,
        options.workloads.last(),
        options.frequencies.last(),
    ) {
        let longest = Duration::from_secs(60) * (minutes + 2);
        let _running = programs.start(workload, longest)?;
        return long::soak(frequency, minutes, &options);
    }
    let mut report = Report::default();
    for &workload in &options.workloads {
        let runs = options.frequencies.len() as u32 + 1;
        let longest =
            runs * (options.window() * 3 + options.warm_up() * 2 + Duration::from_secs(60));
        let running = programs.start(workload, longest)?;
        for &frequency in &options.frequencies {
            let trial = trial::run(frequency, &options)?;
            eprintln!("{workload:?}, {frequency} Hz: {trial:?}");
            let own = own::run(frequency, &running.pids(), &options)?;
            report.add(workload, frequency, trial, &own);
        }
        if !options.without_perf
            && let Some(&frequency) = options.frequencies.last()
        {
            for call_graph in CallGraph::ALL {
                let run = perf::run(call_graph, frequency, options.window())?;
                report.add_perf(workload, frequency, call_graph, &run);
            }
        }
        drop(running);
    }
    if let (Some(&workload), Some(&frequency)) =
        (options.workloads.last(), options.frequencies.first())
    {
        let _running = programs.start(workload, Duration::from_secs(120))?;
        println!("{}\n", long::first_seconds(frequency, &options)?);
    }
    if options.workloads.contains(&Workload::Spawn) && !options.without_perf {
        println!("{}\n", storm::run(&programs, &options)?);
    }
    println!("{report}");
    if let Some(program) = programs.deep() {
        println!("{}", cold::run(&options.profcol, &program)?);
    }
    Ok(())
}
