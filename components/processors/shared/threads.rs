//! Waits for threads to end.

use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Joins threads that were asked to end; returns false if one panicked. A thread that does not end in time is
/// detached.
pub(crate) fn join_within(limit: Duration, mut threads: Vec<JoinHandle<()>>) -> bool {
    let until = Instant::now() + limit;
    let mut is_well = true;
    loop {
        for thread in threads.extract_if(.., |thread| thread.is_finished()) {
            is_well &= thread.join().is_ok();
        }
        if threads.is_empty() {
            return is_well;
        }
        if Instant::now() >= until {
            let count = threads.len();
            tracing::debug!(count, "Threads did not stop in time; detaching them.");
            return is_well;
        }
        sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread::spawn;

    use super::*;

    #[test]
    fn joins_threads_and_reports_panics() {
        let limit = Duration::from_secs(60);
        assert!(join_within(
            limit,
            vec![spawn(|| sleep(POLL_INTERVAL)), spawn(|| {})]
        ));
        let panics = spawn(|| std::panic::resume_unwind(Box::new("expected panic")));
        assert!(!join_within(limit, vec![spawn(|| {}), panics]));
    }

    #[test]
    fn detaches_a_thread_that_does_not_end() {
        let (end, ended) = channel::<()>();
        let never = spawn(move || assert!(ended.recv().is_err()));
        assert!(join_within(Duration::from_millis(20), vec![never]));
        drop(end);
    }
}
