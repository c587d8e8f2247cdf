//! The tasks of one component and their stop signal.

use profcol_component::{ComponentStatus, RunError, Status, Stop};
use tokio::time::Instant;

use crate::tasks::{TaskFailure, Tasks};

pub(super) struct Running {
    pub(super) tasks: Tasks,
    stop: Stop,
    status: ComponentStatus,
}

impl Running {
    pub(super) fn start<W>(
        label: String,
        status: ComponentStatus,
        work: impl FnOnce(Stop) -> W,
    ) -> Self
    where
        W: Future<Output = Result<(), RunError>> + Send + 'static,
    {
        status.started();
        let (own, stop) = (status.clone(), Stop::new());
        let (work, stopped) = (work(stop.clone()), stop.clone());
        let mut tasks = Tasks::default();
        tasks.spawn(label, async move {
            let result = work.await;
            match &result {
                Err(error) => status.set(Status::PermanentError(error.to_string().into())),
                Ok(()) if !stopped.is_cancelled() => {}
                Ok(()) => status.set(Status::Stopped),
            }
            result
        });
        Self {
            tasks,
            stop,
            status: own,
        }
    }

    /// Stops it, or aborts it at the deadline.
    pub(super) async fn end(&mut self, deadline: Instant) -> Vec<TaskFailure> {
        self.status.set(Status::Stopping);
        self.stop.cancel_by(deadline);
        self.tasks.join_until(deadline).await
    }
}
