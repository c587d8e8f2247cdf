//! Offers each sampled executable to the components that need its file.

use std::sync::Arc;

use profcol_component::{BuildId, Executable, Executables};
use profcol_ebpf_loader::{OnOpened, Opened};

/// A reload may add the first component that needs files.
pub fn open_handler(executables: &Executables) -> OnOpened {
    let executables = executables.clone();
    Box::new(move |opened: Opened<'_>| {
        if executables.has_subscribers()
            && let Some(executable) = executable(opened)
        {
            executables.offer(&executable);
        }
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
