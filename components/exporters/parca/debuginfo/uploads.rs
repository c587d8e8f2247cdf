//! Uploads in progress, each with its executable, which is returned even if the task panics.

use std::collections::HashMap;

use profcol_component::Executable;
use tokio::task::{Id, JoinSet};

use super::reader::Skipped;
use super::upload::UploadOutcome;

#[derive(Default)]
pub struct Uploads {
    tasks: JoinSet<UploadOutcome>,
    executables: HashMap<Id, Executable>,
}

impl Uploads {
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    pub fn spawn(
        &mut self,
        executable: Executable,
        upload: impl Future<Output = UploadOutcome> + Send + 'static,
    ) {
        let task = self.tasks.spawn(upload);
        self.executables.insert(task.id(), executable);
    }

    /// The next upload that ends; `None` if there are none.
    pub async fn next(&mut self) -> Option<(Executable, UploadOutcome)> {
        let (id, ended) = match self.tasks.join_next_with_id().await? {
            Ok(ended) => ended,
            Err(error) => {
                tracing::error!(%error, "An upload task of debuginfo failed.");
                // A retry would panic again.
                (error.id(), UploadOutcome::Skipped(Skipped::Defect))
            }
        };
        let executable = self.executables.remove(&id)?;
        Some((executable, ended))
    }

    pub async fn shutdown(&mut self) {
        self.tasks.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use profcol_component::BuildId;

    use super::*;

    #[tokio::test]
    async fn a_panic_returns_the_executable() {
        let executable = |build_id: &str| Executable {
            build_id: BuildId::Gnu(build_id.into()),
            hash: String::new(),
            path: "/bin/true".into(),
            pid: 1,
            file: Arc::new(std::fs::File::open("/dev/null").unwrap()),
        };
        let mut uploads = Uploads::default();
        uploads.spawn(executable("a"), async { panic!("hostile file") });
        uploads.spawn(executable("b"), async { UploadOutcome::InProgress });
        let mut given_back = Vec::new();
        while let Some((executable, ended)) = uploads.next().await {
            let is_defect = matches!(ended, UploadOutcome::Skipped(Skipped::Defect));
            given_back.push((executable.build_id.text().to_owned(), is_defect));
        }
        given_back.sort();
        assert_eq!(
            given_back,
            [("a".to_owned(), true), ("b".to_owned(), false)]
        );
        assert!(uploads.executables.is_empty());
    }
}
