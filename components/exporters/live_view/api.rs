//! The HTTP server: the page, its API, and Pyroscope's for Grafana.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, IF_NONE_MATCH};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use profcol_net::auth::Scheme;
use profcol_net::grpc::{self, Status};
use profcol_net::{AllowedHosts, HttpRequest, HttpService, guarded, response};
use profcol_pyroscope::{ConnectCode, ConnectMethod, ConnectRpcError};
use serde_json::json;
use tokio::sync::Semaphore;

use super::assets::{self, Asset};
use super::label_changes;
use super::parameters::{BadRequest, Parameters};
use super::pyroscope::{Call, Querier, RENDER_PATHS};
use super::queries::{PATHS, Queries};
use super::reply::{JSON, Reply, TEXT, encoded, failed, only, takes_gzip, unread};
use super::service::{self, Service};
use super::tap;
use profcol_history::History;

/// Maximum number of concurrent queries; others wait.
const MAX_QUERIES: usize = 2;

/// Answers browsers and Grafana.
pub(super) struct Api {
    queries: Arc<Queries>,
    service: Arc<Service>,
    querier: Arc<Querier>,
    hosts: AllowedHosts,
    assets: Vec<Asset>,
    /// The page is public where it asks for a token by itself; its data is not.
    assets_are_public: bool,
    permits: Arc<Semaphore>,
}

impl Api {
    pub fn new(
        history: Arc<History>,
        service: Arc<Service>,
        max_memory: usize,
        hosts: AllowedHosts,
        scheme: Option<Scheme>,
    ) -> Self {
        Self {
            querier: Arc::new(Querier::new(Arc::clone(&history))),
            queries: Arc::new(Queries::new(history, max_memory)),
            service,
            hosts,
            assets: assets::all(),
            assets_are_public: matches!(scheme, Some(Scheme::Token(_))),
            permits: Arc::new(Semaphore::new(MAX_QUERIES)),
        }
    }

    fn asset(&self, path: &str) -> Option<&Asset> {
        self.assets.iter().find(|asset| asset.path == path)
    }

    fn answer_asset(&self, asset: &Asset, headers: &HeaderMap) -> Response<Bytes> {
        let takes_gzip = takes_gzip(headers);
        let is_known = asset.is(headers.get(IF_NONE_MATCH));
        let mut response = match is_known {
            true => response(StatusCode::NOT_MODIFIED, asset.content_type(), Bytes::new()),
            false => response(
                StatusCode::OK,
                asset.content_type(),
                asset.bytes(takes_gzip),
            ),
        };
        asset.add_headers(&mut response);
        encoded(response, takes_gzip && !is_known)
    }

    /// Runs the query on a blocking thread, within the limit of concurrent queries.
    async fn in_turn(
        &self,
        answer: impl FnOnce() -> Response<Bytes> + Send + 'static,
    ) -> Response<Bytes> {
        let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await else {
            return response(StatusCode::SERVICE_UNAVAILABLE, TEXT, "stopping\n");
        };
        let answer = tokio::task::spawn_blocking(move || {
            // If the client disconnects, the work goes on and keeps its permit.
            let _permit = permit;
            answer()
        });
        answer.await.unwrap_or_else(|error| {
            failed(&ConnectRpcError {
                code: ConnectCode::Internal,
                message: error.to_string(),
            })
        })
    }

    async fn answer_call(&self, call: Call, request: HttpRequest) -> Response<Bytes> {
        let takes_gzip = takes_gzip(&request.headers);
        let querier = Arc::clone(&self.querier);
        let answer = self.in_turn(move || {
            let body = querier.call(call.method, call.codec, &request.body.plain);
            match body {
                Ok(body) => Reply {
                    content_type: HeaderValue::from_static(call.codec.content_type()),
                    body,
                    file_name: None,
                }
                .response(takes_gzip),
                Err(failure) => failed(&failure),
            }
        });
        within(call.timeout, answer).await
    }

    async fn answer_question(&self, request: HttpRequest) -> Response<Bytes> {
        let takes_gzip = takes_gzip(&request.headers);
        let parameters = Parameters::parse(request.query.as_deref());
        if RENDER_PATHS.contains(&request.path.as_str()) {
            let querier = Arc::clone(&self.querier);
            return self
                .in_turn(move || match querier.render(&request.path, &parameters) {
                    Ok(answer) => Reply::json(&answer).response(takes_gzip),
                    Err(failure) => failed(&failure),
                })
                .await;
        }
        if request.path == tap::PATH {
            // It waits for batches, and takes its turn only to render them.
            let answer = tap::answer(&self.service.taps, &parameters, &self.permits);
            return answered(answer.await, takes_gzip);
        }
        if request.path == label_changes::PATH {
            let answer = label_changes::answer(&self.service, &parameters);
            return answered(answer.await, takes_gzip);
        }
        let (queries, service) = (Arc::clone(&self.queries), Arc::clone(&self.service));
        let answer = move || match service::PATHS.contains(&request.path.as_str()) {
            true => service.answer(&request.path, &parameters),
            false => queries.answer(&request.path, &parameters),
        };
        self.in_turn(move || answered(answer(), takes_gzip)).await
    }
}

impl HttpService for Api {
    fn is_public(&self, head: &Parts) -> bool {
        self.assets_are_public && self.asset(head.uri.path()).is_some()
    }

    fn admit(&self, head: &Parts) -> Result<(), Response<Bytes>> {
        // HTTP/2 has the host in the URI.
        let host = head.headers.get(HOST).and_then(|host| host.to_str().ok());
        let host = host.or(head.uri.host()).unwrap_or("");
        if !self.hosts.contains(host) {
            let text = format!(
                "the host {host:?} is not allowed; add it to `allowed_hosts` of live_view\n"
            );
            return Err(guarded(response(
                StatusCode::MISDIRECTED_REQUEST,
                TEXT,
                text,
            )));
        }
        let path = head.uri.path();
        if let Some(method) = ConnectMethod::of_path(path) {
            return match Call::of(method, &head.headers) {
                _ if head.method != Method::POST => Err(only("POST")),
                Ok(_) => Ok(()),
                Err(unreadable) => Err(guarded(unread(&unreadable))),
            };
        }
        let is_known = self.asset(path).is_some()
            || [
                &PATHS[..],
                &service::PATHS,
                &[tap::PATH, label_changes::PATH],
                &RENDER_PATHS,
            ]
            .iter()
            .any(|paths| paths.contains(&path));
        if !is_known {
            return Err(guarded(response(
                StatusCode::NOT_FOUND,
                TEXT,
                "404 page not found\n",
            )));
        }
        if head.method != Method::GET && head.method != Method::HEAD {
            return Err(only("GET, HEAD"));
        }
        Ok(())
    }

    async fn call(&self, request: HttpRequest) -> Response<Bytes> {
        let call = ConnectMethod::of_path(&request.path).map(|it| Call::of(it, &request.headers));
        guarded(match (call, self.asset(&request.path)) {
            (Some(Ok(call)), _) => self.answer_call(call, request).await,
            (Some(Err(unreadable)), _) => unread(&unreadable),
            (None, Some(asset)) => self.answer_asset(asset, &request.headers),
            (None, None) => self.answer_question(request).await,
        })
    }

    /// Readable for users of the page and for Connect clients.
    fn refusal(&self, _: &HeaderMap, http: StatusCode, status: &Status) -> Response<Bytes> {
        let code = match status.code {
            grpc::Code::InvalidArgument => ConnectCode::InvalidArgument,
            grpc::Code::Unauthenticated => ConnectCode::Unauthenticated,
            grpc::Code::PermissionDenied => ConnectCode::PermissionDenied,
            grpc::Code::ResourceExhausted => ConnectCode::ResourceExhausted,
            grpc::Code::DeadlineExceeded => ConnectCode::DeadlineExceeded,
            grpc::Code::Unavailable => ConnectCode::Unavailable,
            _ => ConnectCode::Internal,
        };
        let message = &status.message;
        let body = json!({"error": message, "code": code.name(), "message": message});
        guarded(response(http, JSON, body.to_string()))
    }
}

fn answered(answer: Result<Reply, BadRequest>, takes_gzip: bool) -> Response<Bytes> {
    answer.map_or_else(
        |error| {
            let body = json!({"error": error.to_string()});
            response(error.status(), JSON, body.to_string())
        },
        |reply| reply.response(takes_gzip),
    )
}

/// Answers with an error after the client's timeout; the query itself runs on.
async fn within(
    timeout: Option<Duration>,
    answer: impl Future<Output = Response<Bytes>>,
) -> Response<Bytes> {
    let Some(timeout) = timeout else {
        return answer.await;
    };
    let answer = tokio::time::timeout(timeout, answer).await;
    answer.unwrap_or_else(|_| {
        failed(&ConnectRpcError {
            code: ConnectCode::DeadlineExceeded,
            message: format!("no answer within {timeout:?}; use a shorter time range"),
        })
    })
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::sync::mpsc;
    use std::task::Poll;

    use profcol_component::testkit::context;
    use profcol_history::Limits;

    use super::*;

    fn api(scheme: Option<Scheme>) -> Api {
        let history = History::new(Limits {
            max_age: Duration::from_secs(60),
            max_bytes: 1 << 20,
            resolution: Duration::from_secs(1),
            sample_labels: Vec::new(),
        });
        let service = Service::new(&context("live_view"));
        let hosts = AllowedHosts::new("127.0.0.1:7071", &[]);
        Api::new(Arc::new(history), Arc::new(service), 1 << 20, hosts, scheme)
    }

    fn head(method: Method, host: &str, path: &str) -> Parts {
        let request = http::Request::builder().method(method).uri(path);
        let (head, ()) = request.header(HOST, host).body(()).unwrap().into_parts();
        head
    }

    #[test]
    fn only_a_page_that_asks_for_a_token_is_public_and_never_its_data() {
        let token = || Some(Scheme::Token("Bearer".to_owned()));
        for (scheme, path, expected) in [
            (token(), "/", true),
            (token(), "/page.js", true),
            (token(), "/style.css", true),
            (token(), "/api/v1/status", false),
            (token(), "/querier.v1.QuerierService/LabelNames", false),
            (token(), "/page.js/../api/v1/status", false),
            (Some(Scheme::Basic), "/", false),
            (None, "/", false),
        ] {
            let request = head(Method::GET, "localhost:7071", path);
            assert_eq!(api(scheme).is_public(&request), expected, "{path}");
        }
    }

    #[test]
    fn taps_have_the_access_rules_of_the_page() {
        let api = api(None);
        let admitted = |method: Method, host: &str, path: &str| {
            let head = head(method, host, path);
            api.admit(&head).map_err(|refused| refused.status())
        };
        for path in [tap::PATH, label_changes::PATH] {
            assert_eq!(admitted(Method::GET, "localhost:7071", path), Ok(()));
            let other = admitted(Method::GET, "evil.example", path);
            assert_eq!(other, Err(StatusCode::MISDIRECTED_REQUEST));
            let other = admitted(Method::POST, "localhost:7071", path);
            assert_eq!(other, Err(StatusCode::METHOD_NOT_ALLOWED));
        }
    }

    /// Lets it begin; it must not end yet.
    async fn begin(mut query: Pin<&mut impl Future<Output = Response<Bytes>>>) {
        let poll = poll_fn(|cx| Poll::Ready(query.as_mut().poll(cx).is_pending()));
        assert!(poll.await, "it has ended");
    }

    #[tokio::test]
    async fn queries_beyond_the_limit_wait_and_those_of_gone_clients_do_not() {
        let api = api(None);
        let (begun, has_begun) = mpsc::channel();
        // A query that runs until its sender is dropped.
        let query = |number: usize| {
            let (end, ended) = mpsc::channel::<()>();
            let begun = begun.clone();
            let answer = api.in_turn(move || {
                begun.send(number).unwrap();
                let _ = ended.recv();
                response(StatusCode::OK, TEXT, "")
            });
            (end, Box::pin(answer))
        };
        let [first, second, third, fourth] = [1, 2, 3, 4].map(query);
        let ((end_first, mut first), (end_second, mut second)) = (first, second);
        let ((_, mut third), (end_fourth, mut fourth)) = (third, fourth);
        for waiting in [&mut first, &mut second, &mut third, &mut fourth] {
            begin(waiting.as_mut()).await;
        }
        // These clients disconnect: the running query keeps its place until it ends, the waiting one has none.
        drop((first, third));
        assert_eq!(api.permits.available_permits(), 0);
        begin(fourth.as_mut()).await;
        drop((end_first, end_fourth));
        assert_eq!(fourth.await.status(), StatusCode::OK);
        drop(end_second);
        assert_eq!(second.await.status(), StatusCode::OK);
        let mut numbers: Vec<_> = has_begun.try_iter().collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2, 4]);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_an_error_after_the_timeout() {
        let late = within(Some(Duration::from_secs(1)), std::future::pending()).await;
        assert_eq!(late.status(), StatusCode::GATEWAY_TIMEOUT);
        let text = String::from_utf8(late.into_body().to_vec()).unwrap();
        assert_eq!(
            text,
            r#"{"code":"deadline_exceeded","message":"no answer within 1s; use a shorter time range"}"#
        );
        let soon = async { response(StatusCode::OK, TEXT, "") };
        let soon = within(Some(Duration::from_secs(1)), soon).await;
        assert_eq!(soon.status(), StatusCode::OK);
    }
}
