//! Prints the hottest functions and processes for interactive use.

mod config;
mod own_process;
mod schedule;
mod screen;
mod table;
mod tally;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use profcol_component::{
    Batch, BuildContext, BuildError, Delivered, Delivery, Exporter, Factory, Refusal, RunError,
    Stability, Stop,
};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

pub use self::config::TopConfig;
use self::schedule::Schedule;
use self::screen::Screen;
use self::tally::Tally;

/// How often the progress line on a terminal changes until the first table.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

pub struct Top {
    config: TopConfig,
    screen: Screen,
    tally: Mutex<Tally>,
    /// Wakes the printing task.
    samples_added: Notify,
}

impl Factory for Top {
    const NAME: &'static str = "top";
    const STABILITY: Stability = Stability::Alpha;
    type Config = TopConfig;
    type Component = dyn Exporter;

    fn build(config: &TopConfig, _: &BuildContext) -> Result<Box<dyn Exporter>, BuildError> {
        Ok(Box::new(Top::new(config, Screen::of(config.output))))
    }
}

impl Top {
    fn new(config: &TopConfig, screen: Screen) -> Self {
        Self {
            config: config.clone(),
            screen,
            tally: Mutex::default(),
            samples_added: Notify::new(),
        }
    }

    /// The text for the samples since the last call; `None` without any.
    fn render(&self) -> Option<String> {
        let mut tally = std::mem::take(&mut *self.tally.lock());
        tally.resolve_pending();
        table::text(&tally, self.config.functions, self.config.processes)
    }

    /// Returns whether there was something to print.
    async fn print(&self) -> bool {
        let Some(text) = self.render() else {
            return false;
        };
        self.screen.print(text).await;
        true
    }
}

#[async_trait]
impl Exporter for Top {
    fn delivery(&self) -> Delivery {
        // Aggregated samples are small, so nothing is queued.
        Delivery::inline()
    }

    async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        let model = batch.profiles.model();
        self.tally.lock().add(model, &batch.deferred_symbols);
        self.samples_added.notify_one();
        Ok(Delivered::default())
    }

    async fn run(self: Arc<Self>, stop: Stop) -> Result<(), RunError> {
        let began = Instant::now();
        let mut schedule = Schedule::new(self.config.interval.into());
        // No deadline while there is nothing to print.
        let mut table_due = None;
        let mut progress_due = self.screen.is_terminal().then_some(began);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.samples_added.notified(), if table_due.is_none() => {
                    table_due = Some(schedule.next(Instant::now()));
                }
                () = until(table_due) => {
                    table_due = None;
                    if self.print().await {
                        progress_due = None;
                    }
                }
                () = until(progress_due) => {
                    let samples = self.tally.lock().samples();
                    self.screen.show_progress(began.elapsed(), samples).await;
                    progress_due = Some(Instant::now() + PROGRESS_INTERVAL);
                }
            }
        }
        if !self.print().await && progress_due.is_some() {
            self.screen.clear_progress().await;
        }
        Ok(())
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}
