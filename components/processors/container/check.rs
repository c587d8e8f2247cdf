//! Checks which container runtimes answer.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use futures_util::future::join_all;
use profcol_component::Check;
use profcol_metadata::container::{Key, LabelFilter, RuntimeError, Socket};
use profcol_profile::Attributes;

const NAME: &str = "container_runtime";
const NAMELESS: &str = "its containers have only IDs: no names, images or labels";

/// Lists the containers of each runtime whose socket exists.
pub(super) async fn socket_checks(sockets: &[Socket], labels: &LabelFilter) -> Vec<Check> {
    let there = sockets.iter().filter(|it| Path::new(&it.path).exists());
    let checks = there.map(async |socket| socket_check(&socket.path, socket.list(labels).await));
    let checks = join_all(checks).await;
    if !checks.is_empty() || sockets.is_empty() {
        return checks;
    }
    // Not a problem: a host without containers has none.
    let paths: Vec<&str> = sockets.iter().map(|it| it.path.as_str()).collect();
    let found = format!(
        "found no socket of a container runtime ({})",
        paths.join(", ")
    );
    vec![Check::new(NAME, found)]
}

fn socket_check(path: &str, answer: Result<HashMap<Key, Arc<Attributes>>, RuntimeError>) -> Check {
    match answer {
        Ok(containers) => {
            let found = format!("{path} answers and lists {} containers", containers.len());
            Check::new(NAME, found)
        }
        Err(error) => Check::new(NAME, format!("{path}: {error}")).warn(
            NAMELESS,
            format!(
                "start the runtime, let the user of profcol open {path} (it belongs to root: run as root, or with CAP_DAC_OVERRIDE), \
                 or remove it from `sockets`"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use profcol_component::Severity;

    use super::*;
    use profcol_metadata::container::Protocol;

    fn socket(path: &Path) -> Socket {
        Socket {
            protocol: Protocol::Docker,
            path: path.to_string_lossy().into_owned(),
        }
    }

    #[tokio::test]
    async fn reports_sockets_without_an_answer_and_not_those_that_are_missing() {
        let root = tempfile::tempdir().unwrap();
        let dead = root.path().join("docker.sock");
        drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
        let missing = root.path().join("none.sock");
        let labels = LabelFilter::new(&[]);
        let checks = socket_checks(&[socket(&dead), socket(&missing)], &labels).await;
        let severities: Vec<_> = checks.iter().map(Check::severity).collect();
        assert_eq!(severities, [Some(Severity::Warning)], "{checks:?}");
        assert!(checks[0].found.contains("docker.sock"), "{checks:?}");
        let checks = socket_checks(&[socket(&missing)], &labels).await;
        assert_eq!(checks.len(), 1);
        assert_eq!(checks[0].severity(), None, "{checks:?}");
        assert_eq!(socket_checks(&[], &labels).await, []);
    }
}
