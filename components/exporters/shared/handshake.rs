//! Checks a destination with an empty message: it has no samples, but needs everything from name resolution
//! to authentication for an answer.

use std::error::Error;
use std::time::Duration;

use http::StatusCode;
use profcol_component::Check;
use profcol_net::grpc::{Code, Status};
use profcol_net::{ClientError, ConnectError, ErrorAt, Hint, HttpError, HttpReply, Message};

/// Below the time limit of a check, so that the error names the slow step.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(4);

const NOT_DELIVERED: &str =
    "profiles are not delivered there; they wait in the queue and are dropped when it is full";
const REFUSED: &str = "the destination refuses profiles, and they are dropped";
const CREDENTIALS: &str = "check the token or password (`auth`, `headers`) and its permissions";

/// Names of checks.
const CLIENT: &str = "client_settings";
const HANDSHAKE: &str = "handshake";

/// An empty message.
pub(crate) fn empty_message() -> Message {
    Message::from(bytes::Bytes::new())
}

/// The check of a client that cannot be created.
pub(crate) fn settings_check(error: &ErrorAt<ClientError>) -> Check {
    let fix = match error.error() {
        ClientError::Endpoint(_) | ClientError::Url(_) => "correct `endpoint`",
        ClientError::Tls(_) => "correct the settings of `tls`, or the file that the message names",
        ClientError::Settings(_) => "correct the setting that the message names",
    };
    Check::new(CLIENT, error.to_string())
        .fail("profcol does not start with this configuration", fix)
}

/// The check of `endpoint` by its response to an empty call. `unknown` is the fix if it does not implement the call.
pub(crate) fn grpc_check<T>(endpoint: &str, answer: Result<T, Status>, unknown: &str) -> Check {
    let status = match answer {
        Ok(_) => {
            return Check::new(
                HANDSHAKE,
                format!("{endpoint} answers and accepts profiles"),
            );
        }
        Err(status) => status,
    };
    match status.code {
        Code::Unavailable | Code::DeadlineExceeded => {
            let found = match status.source() {
                Some(source) if source.is::<ConnectError>() => status.message,
                _ => format!("{endpoint}: {}", status.message),
            };
            undelivered(found, status.hint)
        }
        Code::Unauthenticated | Code::PermissionDenied => {
            Check::new(HANDSHAKE, format!("{endpoint} answers: {status}"))
                .fail(REFUSED, CREDENTIALS)
        }
        Code::Unimplemented => {
            Check::new(HANDSHAKE, format!("{endpoint} answers: {status}")).fail(REFUSED, unknown)
        }
        Code::Internal | Code::Unknown => {
            Check::new(HANDSHAKE, format!("{endpoint} answers: {status}")).warn(
                "the destination may not accept profiles",
                "check the server's log, and that the port is the one for gRPC",
            )
        }
        // The server parsed the message, and rejects an empty one.
        _ => Check::new(HANDSHAKE, format!("{endpoint} answers ({status})")),
    }
}

/// The check of a server by its response to an empty request.
pub(crate) fn http_check(url: &str, answer: Result<HttpReply, HttpError>) -> Check {
    let reply = match answer {
        Ok(reply) => reply,
        Err(error) => {
            let problem = error.problem();
            let found = match &error {
                HttpError::Timeout { .. } | HttpError::Broken { .. } => problem,
                HttpError::Auth(_) | HttpError::Connect(_) => format!("{url}: {problem}"),
            };
            return undelivered(found, error.hint());
        }
    };
    let found = format!("{url} answers with HTTP status {}", reply.status.as_u16());
    let check = Check::new(HANDSHAKE, found);
    match reply.status {
        StatusCode::UNAUTHORIZED
        | StatusCode::FORBIDDEN
        | StatusCode::PROXY_AUTHENTICATION_REQUIRED => check.fail(REFUSED, CREDENTIALS),
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => check.fail(
            REFUSED,
            "set `profiles_endpoint` to the server's URL for OTLP profiles; a Collector has it only with \
             `--feature-gates=service.profilesSupport` and a pipeline `profiles`",
        ),
        status if status.is_server_error() => check.warn(
            "profiles wait in the queue until the server recovers",
            "check the log of the server, or of the proxy in front of it",
        ),
        status if status.is_redirection() => check.fail(
            REFUSED,
            "set the endpoint to the URL to which the server redirects",
        ),
        _ => check,
    }
}

fn undelivered(found: String, hint: Option<Hint>) -> Check {
    let check = Check::new(HANDSHAKE, found);
    match hint {
        Some(hint) => check.fail(NOT_DELIVERED, hint.to_string()),
        None => check.fail(
            NOT_DELIVERED,
            "check the endpoint, the server's log, and firewalls between",
        ),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use profcol_component::Severity;

    use super::*;

    fn status(code: Code, message: &str) -> Result<(), Status> {
        Err(Status::new(code, message))
    }

    fn reply(status: u16) -> Result<HttpReply, HttpError> {
        Ok(HttpReply {
            status: StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::new(),
            body: bytes::Bytes::new(),
        })
    }

    #[test]
    fn only_a_destination_that_accepts_profiles_passes() {
        for (answer, expected) in [
            (Ok(()), None),
            (status(Code::InvalidArgument, "empty"), None),
            (status(Code::Unavailable, "x"), Some(Severity::Failure)),
            (status(Code::Internal, "x"), Some(Severity::Warning)),
            (status(Code::Unauthenticated, "x"), Some(Severity::Failure)),
            (status(Code::Unimplemented, "x"), Some(Severity::Failure)),
        ] {
            let answered = format!("{answer:?}");
            assert_eq!(
                grpc_check("a:1", answer, "fix").severity(),
                expected,
                "{answered}"
            );
        }
        for (answer, expected) in [
            (reply(200), None),
            (reply(400), None),
            (reply(302), Some(Severity::Failure)),
            (reply(401), Some(Severity::Failure)),
            (reply(404), Some(Severity::Failure)),
            (reply(503), Some(Severity::Warning)),
        ] {
            let answered = format!("{answer:?}");
            assert_eq!(
                http_check("http://a", answer).severity(),
                expected,
                "{answered}"
            );
        }
    }

    #[test]
    fn the_hint_of_an_error_is_the_fix() {
        let refused =
            Status::new(Code::Unavailable, "refused; closed").with_hint(Hint::StartServer);
        let check = grpc_check("a:1", Err::<(), _>(refused), "");
        assert_eq!(check.found, "a:1: refused; closed");
        assert_eq!(check.problem.unwrap().fix, Hint::StartServer.to_string());
        let check = grpc_check("a:1", status(Code::Unavailable, "odd"), "");
        assert_eq!(check.found, "a:1: odd");
        assert!(!check.problem.unwrap().fix.is_empty());
    }
}
