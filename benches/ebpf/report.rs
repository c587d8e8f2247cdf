//! The result tables.

use std::fmt::{self, Display, Formatter, Write};

use crate::options::Workload;
use crate::perf::{CallGraph, PerfRun};
use crate::trial::Trial;

const HEADER: &str = "\
| workload | Hz | samples | delivered | kernel, us per sample | median (p90) | frame pointers, us | CPU, % of a core | resident MiB (peak) \
| maps MiB | whole stacks of the host | other ends | whole stacks of the workload |
|---|---|---|---|---|---|---|---|---|---|---|---|---|";

const PERF_HEADER: &str = "\
| workload | Hz | | CPU, % of a core | resident MiB | KiB/s written |
|---|---|---|---|---|---|";

#[derive(Default)]
pub struct Report {
    rows: String,
    perf_rows: String,
    /// From the last trial.
    start: String,
}

impl Report {
    pub fn add(&mut self, workload: Workload, frequency: u64, trial: Trial, own: &str) {
        let is_whole = |reason: &str| matches!(reason, "complete" | "kernel_thread");
        let whole: f64 = trial
            .reasons
            .iter()
            .filter(|(reason, _)| is_whole(reason))
            .map(|(_, share)| share)
            .sum();
        let others: Vec<String> = trial
            .reasons
            .iter()
            .filter(|(reason, _)| !is_whole(reason))
            .take(3)
            .map(|(reason, share)| format!("{reason} {:.1} %", share * 100.0))
            .collect();
        self.rows.push_str(&format!(
            "| {workload:?} | {frequency} | {:.0} | {:.1} % | **{:.2}** | {:.2} ({:.2}) | {:.2} | **{:.2}** | {:.1} ({:.1}) | {:.1} | {:.1} % | {} | {own} |\n",
            trial.samples,
            trial.delivered * 100.0,
            trial.program / 1e3,
            trial.median / 1e3,
            trial.ninth_decile / 1e3,
            trial.frame_pointers / 1e3,
            trial.cpu * 100.0,
            mib(trial.resident),
            mib(trial.peak),
            mib(trial.map_bytes),
            whole * 100.0,
            others.join(", "),
        ));
        self.start = format!(
            "Ready after {:.0} ms, including {} to load the programs; {:.2} s of CPU up to the end of the warm-up; {} instructions verified; \
             the kernel's counting adds {:.0} ns to each run (subtracted above).",
            trial.start * 1e3,
            trial.load,
            trial.start_cpu,
            trial.verified,
            trial.empty,
        );
    }

    pub fn add_perf(
        &mut self,
        workload: Workload,
        frequency: u64,
        call_graph: CallGraph,
        run: &PerfRun,
    ) {
        self.perf_rows.push_str(&format!(
            "| {workload:?} | {frequency} | {} | {:.2} | {:.1} | {:.0} |\n",
            call_graph.name(),
            run.cpu * 100.0,
            mib(run.resident),
            run.bytes_per_second / 1024.0,
        ));
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{HEADER}\n{}\n{}\n", self.rows, self.start)?;
        if !self.perf_rows.is_empty() {
            write!(f, "\n{PERF_HEADER}\n{}", self.perf_rows)?;
        }
        f.write_char('\n')
    }
}

pub fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
