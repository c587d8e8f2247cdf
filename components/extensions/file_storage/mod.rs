//! Stores the sending queues of exporters, and positions of receivers, on disk.

mod config;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use profcol_component::{
    BuildContext, BuildError, Check, Extension, Factory, Handles, RunError, Stability, StartError,
    Stop, path_check,
};
use profcol_storage::Storage;

pub use self::config::FileStorageConfig;

pub struct FileStorage {
    storage: Arc<Storage>,
}

impl Factory for FileStorage {
    const NAME: &'static str = "file_storage";
    const STABILITY: Stability = Stability::Beta;
    /// The directory is locked.
    const IS_EXCLUSIVE: bool = true;
    type Config = FileStorageConfig;
    type Component = dyn Extension;

    fn writes(config: &FileStorageConfig) -> Vec<PathBuf> {
        vec![PathBuf::from(&config.directory)]
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

    async fn check(&self) -> Vec<Check> {
        let options = self.storage.options();
        let mut checks =
            path_check::of_directory(&options.directory, options.create_directory).await;
        checks.push(match self.storage.owner() {
            None => Check::new("lock", "no process uses the directory"),
            Some(pid) => Check::new("lock", format!("process {pid} uses the directory")).warn(
                "a second profcol with this directory does not start",
                "nothing, if that process runs this configuration; otherwise change `directory`",
            ),
        });
        checks
    }

    async fn run(self: Arc<Self>, stop: Stop) -> Result<(), RunError> {
        stop.cancelled().await;
        self.storage.unlock();
        Ok(())
    }
}
