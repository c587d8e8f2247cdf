//! Checks the servers by a request for a file that none of them has.

use std::time::Duration;

use futures_util::future::join_all;
use http::StatusCode;
use profcol_component::{Check, path_check};
use profcol_config::Url;
use profcol_net::{Hint, HttpClient, HttpClientSettings, HttpError};

use super::{Debuginfod, FileKind, FileRequest, USER_AGENT, url_of};

/// The name of the check.
const SERVER: &str = "debuginfod";

/// Below the time limit of a check, so that the error names the slow step. Downloads may take longer.
const TIMEOUT: Duration = Duration::from_secs(4);

const UNNAMED: &str = "programs whose debuginfo is not on this host have no function names";

impl Debuginfod {
    pub async fn check(&self) -> Vec<Check> {
        let servers = self.urls.iter().map(server_check);
        let mut checks = join_all(servers).await;
        checks.extend(path_check::of_directory(self.cache.directory(), true).await);
        checks
    }
}

async fn server_check(server: &Url) -> Check {
    let request = FileRequest {
        build_id: "0".repeat(40).into(),
        what: FileKind::DebugInfo,
    };
    let settings = HttpClientSettings {
        timeout: TIMEOUT.into(),
        ..HttpClientSettings::default()
    };
    let url = url_of(server, &request);
    let client = match HttpClient::new(&settings, url.expose(), None, USER_AGENT) {
        Ok(client) => client,
        Err(error) => {
            return Check::new(SERVER, error.to_string())
                .warn(UNNAMED, "correct `debuginfod::urls`");
        }
    };
    match client.get().await {
        Ok(answer) => answer_check(server, answer.status),
        Err(error) => failure_check(server, &error),
    }
}

fn answer_check(server: &Url, status: StatusCode) -> Check {
    let found = format!("{server} answers with HTTP status {}", status.as_u16());
    let check = Check::new(SERVER, found);
    match status {
        StatusCode::OK | StatusCode::NOT_FOUND => check,
        status if status.is_server_error() => check.warn(
            UNNAMED,
            "check the log of the server, or of the proxy in front of it",
        ),
        _ => check.warn(
            UNNAMED,
            "check that `debuginfod::urls` is the address of a debuginfod server, and that it needs no password",
        ),
    }
}

fn failure_check(server: &Url, error: &HttpError) -> Check {
    let problem = error.problem();
    let found = match error {
        HttpError::Timeout { .. } | HttpError::Broken { .. } => problem,
        HttpError::Auth(_) | HttpError::Connect(_) => format!("{server}: {problem}"),
    };
    let fix = match error.hint() {
        Some(hint @ (Hint::StartServer | Hint::CheckRoutesAndFirewalls)) => hint.text(),
        // There are no options of TLS.
        _ => {
            "check `debuginfod::urls`, DNS, that this host trusts the server's certificate, and firewalls between"
        }
    };
    Check::new(SERVER, found).warn(UNNAMED, fix)
}
