//! The last lines of this process's log, for pages that show them.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use serde::Serialize;

const MAX_LINES: usize = 1000;
const MAX_BYTES: usize = 256 << 10;

/// Ring of the last lines, empty until [`keep`](Self::keep); cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct RecentLog(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_wanted: AtomicBool,
    lines: Mutex<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    kept: VecDeque<String>,
    bytes: usize,
    /// Number of evicted lines.
    evicted: u64,
}

/// Lines, and the number of the next one.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct LogLines {
    pub lines: Vec<String>,
    pub next: u64,
}

impl RecentLog {
    /// Starts keeping lines.
    pub fn keep(&self) {
        self.0.is_wanted.store(true, Ordering::Relaxed);
    }

    pub fn is_wanted(&self) -> bool {
        self.0.is_wanted.load(Ordering::Relaxed)
    }

    pub fn push(&self, line: String) {
        let mut lines = self.0.lines.lock();
        lines.bytes += line.len();
        lines.kept.push_back(line);
        while lines.kept.len() > MAX_LINES || lines.bytes > MAX_BYTES {
            let Some(oldest) = lines.kept.pop_front() else {
                break;
            };
            lines.bytes -= oldest.len();
            lines.evicted += 1;
        }
    }

    /// Kept lines from this number on.
    pub fn since(&self, number: u64) -> LogLines {
        let lines = self.0.lines.lock();
        let skipped = usize::try_from(number.saturating_sub(lines.evicted)).unwrap_or(usize::MAX);
        LogLines {
            lines: lines.kept.iter().skip(skipped).cloned().collect(),
            next: lines.evicted + lines.kept.len() as u64,
        }
    }
}

/// Each write is one line, as loggers write.
impl io::Write for RecentLog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        self.push(text.trim_end_matches('\n').to_owned());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_last_lines_and_numbers_them() {
        let log = RecentLog::default();
        for number in 0..MAX_LINES + 10 {
            log.push(number.to_string());
        }
        let all = log.since(0);
        assert_eq!((all.lines.len(), &*all.lines[0]), (MAX_LINES, "10"));
        let last = log.since(all.next - 1);
        assert_eq!(last.lines, [(MAX_LINES + 9).to_string()]);
        assert_eq!(log.since(all.next).lines, [""; 0]);
        assert_eq!(log.since(u64::MAX).lines, [""; 0]);
    }

    #[test]
    fn memory_is_bounded_for_long_lines() {
        let log = RecentLog::default();
        for _ in 0..10 {
            log.push("x".repeat(MAX_BYTES / 4));
        }
        assert_eq!(log.since(0).lines.len(), 4);
        log.push("x".repeat(2 * MAX_BYTES));
        assert_eq!(log.since(0).lines, [""; 0]);
    }
}
