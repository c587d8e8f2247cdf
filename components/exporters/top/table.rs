//! The printed text.

use std::fmt::Write;
use std::time::Duration;

use profcol_printable::line;

use super::tally::{Function, Name, Process, ProcessName, SampleTypeTally, Tally};

/// Longer names are shortened in the middle.
const WIDTH: usize = 72;

/// `None` if there is nothing to show.
pub(super) fn text(tally: &Tally, functions: usize, processes: usize) -> Option<String> {
    let (first, last) = tally.span?;
    let span = Duration::from_nanos(last.saturating_sub(first));
    let mut text = String::new();
    for tally in tally.types.iter().filter(|it| it.samples > 0) {
        header(&mut text, tally, span);
        if functions > 0 {
            show_functions(&mut text, tally, functions);
        }
        if processes > 0 {
            show_processes(&mut text, tally, processes);
        }
    }
    (!text.is_empty()).then_some(text)
}

fn header(text: &mut String, tally: &SampleTypeTally, span: Duration) {
    let SampleTypeTally {
        kind,
        unit,
        samples,
        total,
        self_value,
        ..
    } = tally;
    let (kind, unit) = (cell(kind), cell(unit));
    let amount = match unit.as_str() {
        "nanoseconds" => {
            let busy = Duration::from_nanos(*total).as_secs_f64();
            let of_span = match span.as_secs_f64() {
                0.0 => String::new(),
                span => format!(" = {:.2} CPUs", busy / span),
            };
            let of_span = if kind == "cpu" {
                of_span
            } else {
                String::new()
            };
            let kind = match kind.as_str() {
                "cpu" => "CPU time",
                kind => kind,
            };
            format!("{busy:.2} s of {kind}{of_span}")
        }
        _ => format!("{total} {unit} of {kind}"),
    };
    let amount = match self_value {
        0 => amount,
        self_value => format!(
            "{amount}, {:.1}% of it profcol itself",
            share(*self_value, *total)
        ),
    };
    let span = span.as_secs_f64();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "\n── {span:.0} s: {samples} samples, {amount}");
}

fn show_functions(text: &mut String, tally: &SampleTypeTally, limit: usize) {
    let mut hottest: Vec<&Function> = tally
        .functions
        .iter()
        .filter(|it| it.self_value > 0)
        .collect();
    hottest.sort_by(|a, b| {
        (b.self_value, b.all, &a.name.function).cmp(&(a.self_value, a.all, &b.name.function))
    });
    let _ = writeln!(text, "  self   total  function");
    for Function {
        name,
        self_value,
        all,
    } in hottest.into_iter().take(limit)
    {
        let Name { function, file } = name;
        let (function, file) = (cell(function), cell(file));
        let name = match (function.as_str(), file.as_str()) {
            ("", "") => "(unknown)".to_owned(),
            ("", file) => format!("(no symbol)  [{file}]"),
            (function, "") => function.to_owned(),
            (function, file) => format!("{function}  [{file}]"),
        };
        let (self_value, all) = (share(*self_value, tally.total), share(*all, tally.total));
        let _ = writeln!(text, "{self_value:>5.1}%  {all:>5.1}%  {name}");
    }
}

fn show_processes(text: &mut String, tally: &SampleTypeTally, limit: usize) {
    let mut hottest: Vec<(&ProcessName, &Process)> = tally.processes.iter().collect();
    hottest.sort_by(|a, b| (b.1.value, a.0).cmp(&(a.1.value, b.0)));
    let _ = writeln!(text, "        total  process");
    for (ProcessName { name, of }, process) in hottest.into_iter().take(limit) {
        let name = match name.as_str() {
            "" => "(unknown)",
            name => name,
        };
        let which = match process.pids.iter().collect::<Vec<_>>()[..] {
            [] => String::new(),
            [pid] => format!(" (pid {pid})"),
            [_, _, ..] => format!(" ({} processes)", process.pids.len()),
        };
        let of = match of.as_str() {
            "" => String::new(),
            of => format!("  [{}]", cell(of)),
        };
        let all = share(process.value, tally.total);
        let _ = writeln!(text, "       {all:>5.1}%  {}{which}{of}", cell(name));
    }
}

fn share(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        whole => part as f64 * 100.0 / whole as f64,
    }
}

/// A name as a table cell: on one line, and not too long.
fn cell(name: &str) -> String {
    let name = line(name);
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= WIDTH {
        return name.into_owned();
    }
    let half = (WIDTH - 1) / 2;
    let (start, end) = (&letters[..half], &letters[letters.len() - half..]);
    start.iter().chain(&['…']).chain(end).collect()
}
