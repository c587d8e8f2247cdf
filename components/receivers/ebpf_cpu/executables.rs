//! Offers each sampled executable to the components that need its file.

use std::sync::Arc;

use profcol_component::{BuildId, Executable, Executables};
use profcol_ebpf_loader::{OnOpened, Opened};

/// `None` if no component needs files.
pub fn open_handler(executables: &Executables) -> Option<OnOpened> {
    let executables = executables.clone();
    executables.has_subscribers().then(|| {
        let on_opened = move |opened: Opened<'_>| {
            if let Some(executable) = executable(opened) {
                executables.offer(&executable);
            }
        };
        Box::new(on_opened) as OnOpened
    })
}

fn executable(opened: Opened<'_>) -> Option<Executable> {
    let known = opened.sampled;
    let hash = known.file_id.clone()?;
    let build_id = match &known.gnu_build_id {
        Some(id) => BuildId::Gnu(id.clone()),
        None => BuildId::Hash(hash.clone()),
    };
    let file = match opened.file.try_clone() {
        Ok(file) => file,
        Err(error) => {
            tracing::debug!(path = known.path, %error, "failed to keep an executable open");
            return None;
        }
    };
    Some(Executable {
        build_id,
        hash,
        path: known.path.clone().into(),
        pid: opened.pid,
        file: Arc::new(file),
    })
}
