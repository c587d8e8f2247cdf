//! Named tasks, joined by their owner.

use std::future::Future;

use profcol_component::RunError;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

/// The tasks of one stage of the service.
#[derive(Default)]
pub(crate) struct Tasks {
    set: JoinSet<Result<(), RunError>>,
    names: Vec<(AbortHandle, String)>,
}

/// A task that ended without a stop request, or failed to stop.
#[derive(Debug, thiserror::Error)]
#[error("{task}: {reason}")]
pub struct TaskFailure {
    pub task: String,
    #[source]
    pub reason: TaskError,
}

/// How a task failed.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error(transparent)]
    Failed(#[from] RunError),
    #[error("panicked: {0}")]
    Panicked(String),
    #[error("was cancelled")]
    Cancelled,
    #[error("did not stop before the deadline and was aborted")]
    Aborted,
}

impl Tasks {
    pub(crate) fn spawn(
        &mut self,
        name: String,
        work: impl Future<Output = Result<(), RunError>> + Send + 'static,
    ) {
        self.names.push((self.set.spawn(work), name));
    }

    /// The next task failure; pending while all tasks run or have ended without error.
    pub(crate) async fn next_failure(&mut self) -> TaskFailure {
        match self.ended().await {
            Some(failure) => failure,
            None => std::future::pending().await,
        }
    }

    /// Returns `None` when all tasks have ended without error, or the next failure.
    pub(crate) async fn ended(&mut self) -> Option<TaskFailure> {
        while let Some(ended) = self.set.join_next_with_id().await {
            if let Some(failure) = self.failure(ended) {
                return Some(failure);
            }
        }
        None
    }

    /// Waits for all tasks; aborts and reports those still running at the deadline.
    pub(crate) async fn join_until(&mut self, deadline: Instant) -> Vec<TaskFailure> {
        let mut failures = Vec::new();
        loop {
            match tokio::time::timeout_at(deadline, self.set.join_next_with_id()).await {
                Ok(None) => return failures,
                Ok(Some(ended)) => failures.extend(self.failure(ended)),
                Err(_elapsed) => break,
            }
        }
        for (handle, name) in self.names.drain(..) {
            if !handle.is_finished() {
                failures.push(TaskFailure {
                    task: name,
                    reason: TaskError::Aborted,
                });
            }
        }
        self.set.shutdown().await;
        failures
    }

    fn failure(
        &mut self,
        ended: Result<(tokio::task::Id, Result<(), RunError>), tokio::task::JoinError>,
    ) -> Option<TaskFailure> {
        let (id, reason) = match ended {
            Ok((id, Ok(()))) => (id, None),
            Ok((id, Err(error))) => (id, Some(error.into())),
            Err(error) => (error.id(), Some(TaskError::of_join(error))),
        };
        let position = self
            .names
            .iter()
            .position(|(handle, _)| handle.id() == id)?;
        let (_, task) = self.names.swap_remove(position);
        Some(TaskFailure {
            task,
            reason: reason?,
        })
    }
}

impl TaskError {
    fn of_join(error: tokio::task::JoinError) -> Self {
        let Ok(panic) = error.try_into_panic() else {
            return Self::Cancelled;
        };
        let text = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "unknown cause".to_owned());
        Self::Panicked(text)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn names_the_task_that_panicked() {
        let mut tasks = Tasks::default();
        tasks.spawn("receiver otlp".to_owned(), async { Ok(()) });
        tasks.spawn("exporter debug".to_owned(), async { panic!("boom") });
        let failure = tasks.next_failure().await;
        assert_eq!(failure.to_string(), "exporter debug: panicked: boom");
    }

    #[tokio::test(start_paused = true)]
    async fn aborts_and_names_tasks_that_do_not_stop() {
        let mut tasks = Tasks::default();
        tasks.spawn("exporter stuck".to_owned(), std::future::pending());
        let failures = tasks
            .join_until(Instant::now() + Duration::from_secs(5))
            .await;
        assert_eq!(failures.len(), 1);
        assert_eq!(failures[0].task, "exporter stuck");
        assert!(matches!(failures[0].reason, TaskError::Aborted));
    }
}
