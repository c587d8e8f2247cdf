//! Checks that the API server answers, and the permissions.

use std::time::Duration;

use futures_util::future::join_all;
use profcol_component::Check;
use serde_json::Value;
use tokio::time::timeout;

use super::NoNode;
use super::api::{ApiError, ClientError, Query, Server};

const TIMEOUT: Duration = Duration::from_secs(4);

const NAME: &str = "api_server";
const LOST: &str = "profiles have no names of pods, containers and workloads";

pub(super) fn no_node(error: &NoNode) -> Check {
    Check::new("node", error.problem()).fail("profcol does not start", NoNode::FIX)
}

/// Requests one object of each kind that is needed. A watch needs the same permission as a list, with another verb; the
/// suggested rule has both.
pub(super) async fn of_rights(server: &Server, queries: Vec<Query>) -> Vec<Check> {
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
            of_answer(&query, answer)
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

fn of_answer(query: &Query, answer: Result<(), ApiError>) -> Check {
    let kind = query.kind.plural();
    let name = format!("{NAME}_{kind}");
    let error = match answer {
        Ok(()) => return Check::new(name, format!("can list {kind}")),
        Err(error) => error,
    };
    let check = Check::new(name, format!("{kind}: {error}"));
    match error {
        ApiError::Forbidden(_) => check.fail(LOST, query.rule()),
        ApiError::Unauthorized(_) => check.fail(
            LOST,
            "give the pod a service account (`serviceAccountName`, `automountServiceAccountToken: true`), or renew the credentials of the kubeconfig",
        ),
        ApiError::Busy(..) | ApiError::Expired => check.warn(
            "names are added later",
            "wait; check the load of the API server if it persists",
        ),
        _ => check.fail(
            LOST,
            "check that this host reaches the API server: the address, network policies, and its certificate",
        ),
    }
}
