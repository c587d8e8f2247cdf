//! Whether a destination answers, asked with an empty message: no sample is in it, and all that stands between has to work
//! for an answer, from the name service to the server's list of tokens.

use std::time::Duration;

use http::StatusCode;
use profcol_component::{Check, StartError};
use profcol_net::grpc::{Code, Status};
use profcol_net::{HttpError, HttpReply, Message};

/// Below the time that a check may take, so that it is told what took so long.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(4);

const NOT_DELIVERED: &str =
    "profiles are not delivered there; they wait in the queue and are dropped when it is full";
const REFUSED: &str = "the destination refuses profiles, and they are dropped";
const CREDENTIALS: &str =
    "check the token or password (`auth`, `headers`) and what it is allowed to do there";

/// Names of checks.
const CLIENT: &str = "client_settings";
const HANDSHAKE: &str = "handshake";

/// A message without anything in it.
pub(crate) fn nothing() -> Message {
    Message::from(bytes::Bytes::new())
}

/// Of a client that cannot even be made.
pub(crate) fn of_settings(error: &StartError) -> Check {
    let error = error.to_string();
    let fix =
        "correct what the message names: the endpoint, or the file of a certificate, key or token";
    let (found, fix) = error.rsplit_once("; ").unwrap_or((&error, fix));
    Check::new(CLIENT, found).fail("profcol does not start with this configuration", fix)
}

/// What `endpoint` says to an empty call. `what` it has to be ready for, and how it gets so: where it does not know the call.
pub(crate) fn of_grpc<T>(endpoint: &str, answer: Result<T, Status>, unknown: &str) -> Check {
    let status = match answer {
        Ok(_) => return Check::new(HANDSHAKE, format!("{endpoint} answers and takes profiles")),
        Err(status) => status,
    };
    match status.code {
        Code::Unavailable | Code::DeadlineExceeded => {
            let (found, fix) = with_fix(endpoint, status.message);
            Check::new(HANDSHAKE, found).fail(NOT_DELIVERED, fix)
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
                "the destination may not take profiles",
                "look at the log of that server, and check that the port is the one for gRPC",
            )
        }
        // It has looked at the message, and does not like an empty one.
        _ => Check::new(HANDSHAKE, format!("{endpoint} answers ({status})")),
    }
}

/// What a server says to an empty request.
pub(crate) fn of_http(url: &str, answer: Result<HttpReply, HttpError>) -> Check {
    let reply = match answer {
        Ok(reply) => reply,
        Err(error) => {
            let (found, fix) = with_fix(url, error.to_string());
            return Check::new(HANDSHAKE, found).fail(NOT_DELIVERED, fix);
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
            "set `profiles_endpoint` to the URL at which the server takes OTLP profiles; a Collector has it only with \
             `--feature-gates=service.profilesSupport` and a pipeline `profiles`",
        ),
        status if status.is_server_error() => check.warn(
            "profiles wait in the queue until the server is well again",
            "look at the log of that server, or of the proxy before it",
        ),
        status if status.is_redirection() => check.fail(
            REFUSED,
            "set the endpoint to the URL to which the server redirects",
        ),
        _ => check,
    }
}

/// Our errors end with what to do about them.
fn with_fix(place: &str, message: String) -> (String, String) {
    let message = match message.contains(place) {
        true => message,
        false => format!("{place}: {message}"),
    };
    match message.rsplit_once("; ") {
        Some((found, fix)) => (found.to_owned(), fix.to_owned()),
        None => (
            message,
            "check the endpoint, the server's log, and firewalls between".to_owned(),
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
    fn only_a_destination_that_takes_profiles_is_well() {
        for (answer, expected) in [
            (Ok(()), None),
            (status(Code::InvalidArgument, "empty"), None),
            (status(Code::Unavailable, "x"), Some(Severity::Failure)),
            (status(Code::Internal, "x"), Some(Severity::Warning)),
            (status(Code::Unauthenticated, "x"), Some(Severity::Failure)),
            (status(Code::Unimplemented, "x"), Some(Severity::Failure)),
        ] {
            let said = format!("{answer:?}");
            assert_eq!(of_grpc("a:1", answer, "fix").severity(), expected, "{said}");
        }
        for (answer, expected) in [
            (reply(200), None),
            (reply(400), None),
            (reply(302), Some(Severity::Failure)),
            (reply(401), Some(Severity::Failure)),
            (reply(404), Some(Severity::Failure)),
            (reply(503), Some(Severity::Warning)),
        ] {
            let said = format!("{answer:?}");
            assert_eq!(of_http("http://a", answer).severity(), expected, "{said}");
        }
    }

    #[test]
    fn the_end_of_an_error_is_the_fix() {
        let refused = "failed to connect to a:1: connection refused; check that the server runs";
        let check = of_grpc("a:1", status(Code::Unavailable, refused), "");
        assert_eq!(check.found, "failed to connect to a:1: connection refused");
        assert_eq!(check.problem.unwrap().fix, "check that the server runs");
        let check = of_grpc("a:1", status(Code::Unavailable, "odd"), "");
        assert_eq!(check.found, "a:1: odd");
        assert!(!check.problem.unwrap().fix.is_empty());
    }
}
