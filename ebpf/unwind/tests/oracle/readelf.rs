//! Parses `readelf -wF`: an independent reading of the same file.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

#[derive(Debug)]
pub struct Entry {
    /// From `.debug_frame`, which only counts where `.eh_frame` has no entry.
    pub debug: bool,
    pub start: u64,
    pub end: u64,
    pub signal: bool,
    pub rows: Vec<Row>,
}

/// One row in readelf's notation: `rsp+8`, `c-16`, `exp`, `u`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub start: u64,
    pub cfa: String,
    pub fp: Option<String>,
    pub sp: Option<String>,
    pub ra: Option<String>,
}

/// Ordered so that the last entry with an address wins.
pub struct ReadelfOutput {
    eh: Vec<Entry>,
    debug: Vec<Entry>,
}

impl ReadelfOutput {
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.eh.iter().chain(&self.debug)
    }

    /// The winning entry at this address.
    pub fn at(&self, pc: u64) -> Option<(&Entry, &Row)> {
        let find = |entries: &'_ [Entry]| {
            let behind = entries.partition_point(|entry| entry.start <= pc);
            // Only nearby entries overlap.
            (behind.saturating_sub(300)..behind)
                .rev()
                .find(|&index| entries[index].end > pc)
        };
        let entry = match find(&self.eh) {
            Some(index) => &self.eh[index],
            None => &self.debug[find(&self.debug)?],
        };
        let row = entry.rows.partition_point(|row| row.start <= pc);
        Some((entry, entry.rows.get(row.checked_sub(1)?)?))
    }
}

/// The oldest release with this output format.
const OLDEST: (u32, u32) = (2, 40);

/// The reason why readelf cannot be used, if any.
pub fn missing() -> Option<String> {
    let required = format!("GNU readelf from {}.{}", OLDEST.0, OLDEST.1);
    let Ok(run) = Command::new("readelf").arg("--version").output() else {
        return Some(format!("no {required}"));
    };
    let output = String::from_utf8_lossy(&run.stdout);
    match version(&output) {
        Some(version) if version >= OLDEST => None,
        _ => Some(format!(
            "no {required}, it is {}",
            output.lines().next().unwrap_or("of no version")
        )),
    }
}

/// `GNU readelf (GNU Binutils for Debian) 2.40` is 2.40, `GNU readelf version 2.43.50-1.el9` 2.43. LLVM's is unsupported.
pub fn version(output: &str) -> Option<(u32, u32)> {
    let first = output.lines().next()?;
    let last = first
        .strip_prefix("GNU readelf")?
        .split_whitespace()
        .next_back()?;
    let mut numbers = last.split(['.', '-']).map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Runs readelf on a file and parses its output.
pub fn read(path: &Path, fp: &str, sp: &str) -> ReadelfOutput {
    let mut child = Command::new("readelf")
        .args([
            "--debug-dump=frames-interp",
            "--debug-dump=no-follow-links",
            "-W",
        ])
        .arg(path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("readelf runs");
    let output = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut entries: Vec<Entry> = Vec::new();
    // By CIE: whether it is a signal frame, and the default row of its FDEs.
    let mut commons: HashMap<String, (bool, Option<Row>)> = HashMap::new();
    let mut common = String::new();
    let mut columns: Vec<String> = Vec::new();
    let (mut debug, mut in_entry) = (false, false);
    for line in output.lines().map_while(Result::ok) {
        // A register in another register: `r7 (rsp)`.
        let line = line.replace(" (", "(");
        let words: Vec<&str> = line.split_whitespace().collect();
        if line.starts_with("Contents of the") {
            // Compressed, it is `.zdebug_frame` in files of older tools.
            debug = line.contains("debug_frame");
            in_entry = false;
            commons.clear();
        } else if line.contains("ZERO terminator") {
            columns.clear();
        } else if words.get(3) == Some(&"CIE") {
            common = words[0].to_owned();
            commons.insert(common.clone(), (words[4].contains('S'), None));
            in_entry = false;
        } else if words.get(3) == Some(&"FDE") {
            let common = words[4].trim_start_matches("cie=");
            let (signal, row) = commons.get(common).cloned().unwrap_or_default();
            let (start, end) = words[5]
                .trim_start_matches("pc=")
                .split_once("..")
                .expect("a range");
            let number = |text| u64::from_str_radix(text, 16).expect("an address");
            let start = number(start);
            entries.push(Entry {
                debug,
                start,
                end: number(end),
                signal,
                rows: row.map(|row| Row { start, ..row }).into_iter().collect(),
            });
            in_entry = true;
        } else if words.first() == Some(&"LOC") {
            columns = words.iter().map(|word| (*word).to_owned()).collect();
        } else if !words.is_empty()
            && words.len() == columns.len()
            && let Ok(start) = u64::from_str_radix(words[0], 16)
        {
            let column = |name: &str| {
                let index = columns.iter().position(|column| column == name)?;
                Some(words[index].to_owned())
            };
            let row = Row {
                start,
                cfa: words[1].to_owned(),
                fp: column(fp),
                sp: column(sp),
                ra: column("ra"),
            };
            if !in_entry {
                if let Some(common) = commons.get_mut(&common) {
                    common.1 = Some(row);
                }
                continue;
            }
            let entry = entries.last_mut().expect("an entry has begun");
            // readelf repeats a row for each empty step.
            if entry.rows.last().is_some_and(|last| last.start == start) {
                entry.rows.pop();
            }
            entry.rows.push(row);
        }
    }
    child.wait().expect("it was started");
    entries.retain(|entry| entry.start < entry.end);
    let mut numbered: Vec<(usize, Entry)> = entries.into_iter().enumerate().collect();
    numbered.sort_by_key(|(index, entry)| (entry.start, Reverse(entry.end), Reverse(*index)));
    let (debug, eh) = numbered
        .into_iter()
        .map(|(_, entry)| entry)
        .partition(|entry| entry.debug);
    ReadelfOutput { eh, debug }
}
