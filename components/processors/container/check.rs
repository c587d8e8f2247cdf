//! Which container runtimes answer.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use futures_util::future::join_all;
use profcol_component::Check;
use profcol_profile::Attributes;
use tokio::time::timeout;

use super::DESCRIBE_TIMEOUT;
use super::described::Wanted;
use super::directory::Key;
use super::runtime::Socket;

const NAME: &str = "container_runtime";
const NAMELESS: &str = "its containers have ids, and neither names nor images nor labels";

/// Those that are there are asked for all of their containers.
pub(super) async fn of_sockets(sockets: &[Socket], wanted: &Wanted) -> Vec<Check> {
    let there = sockets.iter().filter(|it| Path::new(&it.path).exists());
    let checks = there.map(|socket| async {
        let answer = async { socket.open()?.list(wanted).await };
        let answer = timeout(DESCRIBE_TIMEOUT, answer).await;
        of_answer(
            &socket.path,
            answer.unwrap_or_else(|_| Err("no answer in time".to_owned())),
        )
    });
    let checks = join_all(checks).await;
    if !checks.is_empty() || sockets.is_empty() {
        return checks;
    }
    // Hosts without containers have none, and it is looked for them again.
    let paths: Vec<&str> = sockets.iter().map(|it| it.path.as_str()).collect();
    let found = format!("no runtime's socket is there ({})", paths.join(", "));
    vec![Check::new(NAME, found)]
}

fn of_answer(path: &str, answer: Result<HashMap<Key, Arc<Attributes>>, String>) -> Check {
    match answer {
        Ok(containers) => {
            let found = format!("{path} answers and knows {} containers", containers.len());
            Check::new(NAME, found)
        }
        Err(error) => Check::new(NAME, format!("{path}: {error}")).warn(
            NAMELESS,
            format!(
                "start the runtime, or let the user of profcol open {path} (it is root's: run as root, or with CAP_DAC_OVERRIDE); \
                 take it out of `sockets` if nothing of it is wanted"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use profcol_component::Severity;

    use super::super::runtime::Kind;
    use super::*;

    fn socket(path: &Path) -> Socket {
        Socket {
            kind: Kind::Docker,
            path: path.to_string_lossy().into_owned(),
        }
    }

    #[tokio::test]
    async fn a_socket_that_does_not_answer_is_told_and_one_that_is_missing_is_not_missed() {
        let root = tempfile::tempdir().unwrap();
        let dead = root.path().join("docker.sock");
        drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
        let missing = root.path().join("none.sock");
        let wanted = Wanted::new(&[]);
        let checks = of_sockets(&[socket(&dead), socket(&missing)], &wanted).await;
        let severities: Vec<_> = checks.iter().map(Check::severity).collect();
        assert_eq!(severities, [Some(Severity::Warning)], "{checks:?}");
        assert!(checks[0].found.contains("docker.sock"), "{checks:?}");
        let checks = of_sockets(&[socket(&missing)], &wanted).await;
        assert_eq!(checks.len(), 1);
        assert_eq!(checks[0].severity(), None, "{checks:?}");
        assert_eq!(of_sockets(&[], &wanted).await, []);
    }
}
