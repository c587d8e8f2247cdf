//! Checks that the API server answers, and the permissions.

use std::time::Duration;

use futures_util::future::join_all;
use profcol_component::Check;
use serde_json::Value;
use tokio::time::timeout;

use crate::access::{ClientError, Server};
use crate::api::{ApiError, Query};

const TIMEOUT: Duration = Duration::from_secs(4);

const NAME: &str = "api_server";

/// What a failure means for the component.
#[derive(Clone, Copy, Debug)]
pub struct CheckImpact {
    /// While requests fail.
    pub lost: &'static str,
    /// While the server is busy.
    pub late: &'static str,
}

/// Requests one object of each kind that is needed. A watch needs the same permission as a list, with another verb; the
/// suggested rule has both.
pub async fn check_rights(server: &Server, queries: Vec<Query>, impact: CheckImpact) -> Vec<Check> {
    let client = match server.client().await {
        Ok(client) => client,
        Err(error) => return vec![no_client(&error)],
    };
    let requests = queries.into_iter().map(|query| {
        let client = client.clone();
        async move {
            let answer = match query.first() {
                Ok(request) => match timeout(TIMEOUT, client.request::<Value>(request)).await {
                    Ok(answer) => answer.map(drop).map_err(ApiError::from),
                    Err(_) => Err(ApiError::Timeout("the request")),
                },
                Err(error) => Err(error),
            };
            answer_check(&query, answer, impact)
        }
    });
    join_all(requests).await
}

fn no_client(error: &ClientError) -> Check {
    Check::new(NAME, error.to_string()).fail(
        "profcol does not start",
        "run it in a pod with a service account, or set `auth_type: kubeConfig` and `kube_config_path`",
    )
}

fn answer_check(query: &Query, answer: Result<(), ApiError>, impact: CheckImpact) -> Check {
    let CheckImpact { lost, late } = impact;
    let kind = query.plural();
    let name = format!("{NAME}_{kind}");
    let error = match answer {
        Ok(()) => return Check::new(name, format!("can list {kind}")),
        Err(error) => error,
    };
    let check = Check::new(name, format!("{kind}: {error}"));
    match error {
        ApiError::Forbidden(_) => check.fail(lost, query.rule()),
        ApiError::Unauthorized(_) => check.fail(
            lost,
            "give the pod a service account (`serviceAccountName`, `automountServiceAccountToken: true`), or renew the credentials of the kubeconfig",
        ),
        ApiError::Busy(..) | ApiError::Expired => check.warn(
            late,
            "wait; check the load of the API server if it persists",
        ),
        _ => check.fail(
            lost,
            "check that this host reaches the API server: the address, network policies, and its certificate",
        ),
    }
}
