//! Stores the sending queues of exporters on disk.

mod config;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use profcol_component::{
    BuildContext, BuildError, Capabilities, Extension, Factory, Handles, RunError, Stability,
    StartError, Stop,
};
use profcol_storage::Storage;

pub use self::config::FileStorageConfig;

pub struct FileStorage {
    storage: Arc<Storage>,
}

impl Factory for FileStorage {
    const NAME: &'static str = "file_storage";
    const STABILITY: Stability = Stability::Beta;
    type Config = FileStorageConfig;
    type Component = dyn Extension;

    fn capabilities(_: &FileStorageConfig) -> Capabilities {
        Capabilities::DAC_OVERRIDE
    }

    fn build(
        config: &FileStorageConfig,
        _: &BuildContext,
    ) -> Result<Box<dyn Extension>, BuildError> {
        Ok(Box::new(FileStorage {
            storage: Arc::new(Storage::new(config.options())),
        }))
    }
}

#[async_trait]
impl Extension for FileStorage {
    fn offer(self: Arc<Self>, handles: &mut Handles) {
        handles.add(Arc::clone(&self.storage));
    }

    async fn start(&self) -> Result<(), StartError> {
        self.storage.lock().map_err(StartError::new)
    }

    async fn run(self: Arc<Self>, stop: Stop) -> Result<(), RunError> {
        stop.cancelled().await;
        self.storage.unlock();
        Ok(())
    }
}
