//! Prints the hottest functions and processes, for people who watch.

mod config;
mod table;
mod tally;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use profcol_component::{
    Batch, BuildContext, BuildError, Delivered, Delivery, Exporter, Factory, Refusal, RunError,
    Stability, Stop,
};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::config::Output;
pub use self::config::TopConfig;
use self::tally::Tally;

pub struct Top {
    config: TopConfig,
    tally: Mutex<Tally>,
    /// Tells the printing task that there is something.
    something: Notify,
}

impl Factory for Top {
    const NAME: &'static str = "top";
    const STABILITY: Stability = Stability::Alpha;
    type Config = TopConfig;
    type Component = dyn Exporter;

    fn build(config: &TopConfig, _: &BuildContext) -> Result<Box<dyn Exporter>, BuildError> {
        Ok(Box::new(Top::new(config)))
    }
}

impl Top {
    fn new(config: &TopConfig) -> Self {
        Self {
            config: config.clone(),
            tally: Mutex::default(),
            something: Notify::new(),
        }
    }

    /// The text for what came since the last time; `None` where nothing did.
    fn take_text(&self) -> Option<String> {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        let tally = std::mem::take(&mut *tally);
        table::text(&tally, self.config.functions, self.config.processes)
    }

    async fn print(&self) {
        let Some(text) = self.take_text() else {
            return;
        };
        let output = self.config.output;
        // A terminal that is stopped must hold up nothing else.
        let printing = tokio::task::spawn_blocking(move || match output {
            Output::Stdout => write(std::io::stdout().lock(), &text),
            Output::Stderr => write(std::io::stderr().lock(), &text),
        });
        if let Ok(Err(error)) = printing.await {
            tracing::warn!(%error, "What is hottest cannot be printed.");
        }
    }
}

#[async_trait]
impl Exporter for Top {
    fn delivery(&self) -> Delivery {
        // What is added up is small, so nothing is queued.
        Delivery::inline()
    }

    async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.add(batch.profiles.model());
        self.something.notify_one();
        Ok(Delivered::default())
    }

    async fn run(self: Arc<Self>, stop: Stop) -> Result<(), RunError> {
        let interval: Duration = self.config.interval.into();
        let mut due = Instant::now() + interval;
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.something.notified() => tokio::select! {
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep_until(due) => {
                        self.print().await;
                        due = Instant::now() + interval;
                    }
                },
            }
        }
        self.print().await;
        Ok(())
    }
}

fn write(mut output: impl Write, text: &str) -> std::io::Result<()> {
    output.write_all(text.as_bytes())?;
    output.flush()
}
