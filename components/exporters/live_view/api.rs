//! The page and the answers to what it asks.

use std::future::Future;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING,
    CONTENT_SECURITY_POLICY, HOST, IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use profcol_files::Format;
use profcol_flamegraph::{Document, Sandwich};
use profcol_net::grpc::{self, Status};
use profcol_net::{HttpRequest, HttpService, response};
use profcol_pyroscope::{Code, Failure, Method as Connect};
use serde::Serialize;
use serde_json::json;
use tokio::sync::Semaphore;

use super::assets::{self, Asset};
use super::history::{Answer, History};
use super::hosts::AllowedHosts;
use super::parameters::{BadRequest, Parameters, now};
use super::pyroscope::{ACCEPT_POST, Call, Querier, RENDER_PATHS, Unreadable};

/// Queries that are worked on at once; others wait.
const MAX_QUERIES: usize = 2;
/// Smaller answers are sent as they are.
const MIN_COMPRESSED: usize = 1024;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const BINARY: HeaderValue = HeaderValue::from_static("application/octet-stream");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Nothing from elsewhere, no script in the page's text, no frame of others around it.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// Answers browsers, and Grafana.
pub(super) struct Api {
    questions: Arc<Questions>,
    querier: Arc<Querier>,
    hosts: AllowedHosts,
    assets: Vec<Asset>,
    queries: Arc<Semaphore>,
}

/// What is asked of the history.
struct Questions {
    history: Arc<RwLock<History>>,
    max_memory: usize,
}

/// What is sent, before it is compressed.
struct Reply {
    content_type: HeaderValue,
    body: Vec<u8>,
    /// The name under which a browser saves it.
    file_name: Option<String>,
}

impl Api {
    pub fn new(history: Arc<RwLock<History>>, max_memory: usize, hosts: AllowedHosts) -> Self {
        Self {
            querier: Arc::new(Querier::new(Arc::clone(&history))),
            questions: Arc::new(Questions {
                history,
                max_memory,
            }),
            hosts,
            assets: assets::all(),
            queries: Arc::new(Semaphore::new(MAX_QUERIES)),
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

    /// Answers when it is its turn, on a thread of its own.
    async fn in_turn(
        &self,
        answer: impl FnOnce() -> Response<Bytes> + Send + 'static,
    ) -> Response<Bytes> {
        let Ok(permit) = Arc::clone(&self.queries).acquire_owned().await else {
            return response(StatusCode::SERVICE_UNAVAILABLE, TEXT, "stopping\n");
        };
        let answer = tokio::task::spawn_blocking(move || {
            // A client that hangs up ends the waiting, not the work.
            let _permit = permit;
            answer()
        });
        answer.await.unwrap_or_else(|error| {
            failed(&Failure {
                code: Code::Internal,
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
        let questions = Arc::clone(&self.questions);
        self.in_turn(move || match questions.answer(&request.path, &parameters) {
            Ok(reply) => reply.response(takes_gzip),
            Err(error) => response(
                StatusCode::BAD_REQUEST,
                JSON,
                json!({"error": error.to_string()}).to_string(),
            ),
        })
        .await
    }
}

impl Questions {
    fn answer(&self, path: &str, parameters: &Parameters) -> Result<Reply, BadRequest> {
        match path {
            "/api/v1/status" => Ok(self.status()),
            "/api/v1/profile" => self.profile(parameters),
            "/api/v1/sandwich" => self.sandwich(parameters),
            "/api/v1/timeline" => {
                let (by, limit) = (parameters.text("by").unwrap_or(""), parameters.limit(8)?);
                let query = parameters.query()?;
                Ok(Reply::json(&self.read(|it| it.timeline(&query, by, limit))))
            }
            "/api/v1/labels" => {
                let query = parameters.query()?;
                Ok(Reply::json(&self.read(|it| it.label_names(&query))))
            }
            "/api/v1/label_values" => {
                let (name, limit) = (parameters.required("name")?, parameters.limit(50)?);
                let query = parameters.query()?;
                Ok(Reply::json(
                    &self.read(|it| it.label_values(&query, name, limit)),
                ))
            }
            "/api/v1/processes" => {
                let (query, limit) = (parameters.query()?, parameters.limit(1000)?);
                Ok(Reply::json(&self.read(|it| it.processes(&query, limit))))
            }
            _ => self.download(parameters),
        }
    }

    fn status(&self) -> Reply {
        let extent = self.read(History::extent);
        let types: Vec<_> = extent
            .types
            .iter()
            .map(|kind| json!({"name": kind.name, "unit": kind.unit}))
            .collect();
        Reply::json(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "host": host_name(),
            "now": now(),
            "oldest": extent.oldest,
            "newest": extent.newest,
            "types": types,
            "memory_bytes": extent.bytes,
            "max_memory_bytes": self.max_memory,
            "samples": extent.samples,
            "evicted_samples": extent.evicted_samples,
        }))
    }

    fn profile(&self, parameters: &Parameters) -> Result<Reply, BadRequest> {
        let max_nodes = parameters.max_nodes()?;
        let Answer { tree, source } = self.tree(parameters)?;
        Ok(Reply::json(&Document::new(&tree, &source, max_nodes)))
    }

    fn sandwich(&self, parameters: &Parameters) -> Result<Reply, BadRequest> {
        let (name, binary) = (
            parameters.required("name")?,
            parameters.text("binary").unwrap_or(""),
        );
        let max_nodes = parameters.max_nodes()?;
        let Answer { tree, source } = self.tree(parameters)?;
        let sides = match tree.find(name, binary) {
            Some(function) => tree.sandwich(function),
            None => Default::default(),
        };
        Ok(Reply::json(&Sandwich::new(
            &tree, &sides, &source, max_nodes,
        )))
    }

    fn download(&self, parameters: &Parameters) -> Result<Reply, BadRequest> {
        let format = parameters.required("format")?;
        let Answer { tree, source } = self.tree(parameters)?;
        let title = format!("{} on {}", source.sample_type.name, host_name());
        let (format, content_type, extension) = match format {
            "pprof" => (Format::Pprof, BINARY, "pb.gz"),
            "folded" => (Format::Folded, TEXT, "folded"),
            "svg" => (
                Format::Svg,
                HeaderValue::from_static("image/svg+xml"),
                "svg",
            ),
            "html" => (Format::Html, HeaderValue::from_static("text/html"), "html"),
            "speedscope" => (Format::Speedscope, JSON, "speedscope.json"),
            other => return Err(BadRequest::Format(other.to_owned())),
        };
        let body = profcol_files::write_tree(&tree, &source, format, &title)?;
        Ok(Reply {
            content_type,
            body,
            file_name: Some(format!("profile-{}.{extension}", source.until / 1000)),
        })
    }

    fn tree(&self, parameters: &Parameters) -> Result<Answer, BadRequest> {
        let (query, base) = (parameters.query()?, parameters.base()?);
        self.history
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .resolve_symbols();
        Ok(self.read(|it| it.call_tree(&query, base.as_ref())))
    }

    fn read<T>(&self, ask: impl FnOnce(&History) -> T) -> T {
        ask(&self.history.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl HttpService for Api {
    fn admit(&self, head: &Parts) -> Result<(), Response<Bytes>> {
        // HTTP/2 says it in the URI.
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
        if let Some(method) = Connect::of_path(path) {
            return match Call::of(method, &head.headers) {
                _ if head.method != Method::POST => Err(only("POST")),
                Ok(_) => Ok(()),
                Err(unreadable) => Err(guarded(unread(&unreadable))),
            };
        }
        let is_known =
            self.asset(path).is_some() || PATHS.contains(&path) || RENDER_PATHS.contains(&path);
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
        let call = Connect::of_path(&request.path).map(|it| Call::of(it, &request.headers));
        guarded(match (call, self.asset(&request.path)) {
            (Some(Ok(call)), _) => self.answer_call(call, request).await,
            (Some(Err(unreadable)), _) => unread(&unreadable),
            (None, Some(asset)) => self.answer_asset(asset, &request.headers),
            (None, None) => self.answer_question(request).await,
        })
    }

    /// For people, as the page has it, and for clients of Connect.
    fn refusal(&self, _: &HeaderMap, http: StatusCode, status: &Status) -> Response<Bytes> {
        let code = match status.code {
            grpc::Code::InvalidArgument => Code::InvalidArgument,
            grpc::Code::Unauthenticated => Code::Unauthenticated,
            grpc::Code::PermissionDenied => Code::PermissionDenied,
            grpc::Code::ResourceExhausted => Code::ResourceExhausted,
            grpc::Code::DeadlineExceeded => Code::DeadlineExceeded,
            grpc::Code::Unavailable => Code::Unavailable,
            _ => Code::Internal,
        };
        let message = &status.message;
        let body = json!({"error": message, "code": code.name(), "message": message});
        guarded(response(http, JSON, body.to_string()))
    }
}

/// Who waits no longer is told so; the answer is worked on until it is there.
async fn within(
    timeout: Option<Duration>,
    answer: impl Future<Output = Response<Bytes>>,
) -> Response<Bytes> {
    let Some(timeout) = timeout else {
        return answer.await;
    };
    let answer = tokio::time::timeout(timeout, answer).await;
    answer.unwrap_or_else(|_| {
        failed(&Failure {
            code: Code::DeadlineExceeded,
            message: format!("no answer within {timeout:?}; ask for a shorter time"),
        })
    })
}

fn failed(failure: &Failure) -> Response<Bytes> {
    let status = StatusCode::from_u16(failure.code.http_status());
    let body = json!({"code": failure.code.name(), "message": failure.message});
    response(
        status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        JSON,
        body.to_string(),
    )
}

fn unread(unreadable: &Unreadable) -> Response<Bytes> {
    let why = match unreadable {
        Unreadable::Headers(failure) => return failed(failure),
        Unreadable::ContentType => {
            Failure::invalid("the content type must be application/proto or application/json")
        }
    };
    let mut refused = failed(&why);
    *refused.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    let (name, value) = ACCEPT_POST;
    refused.headers_mut().insert(name, value);
    refused
}

/// The answer to other methods than these.
fn only(methods: &'static str) -> Response<Bytes> {
    let text = format!("use {methods}\n");
    let mut refused = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, text);
    let methods = HeaderValue::from_static(methods);
    refused.headers_mut().insert(ALLOW, methods);
    guarded(refused)
}

const PATHS: [&str; 8] = [
    "/api/v1/status",
    "/api/v1/profile",
    "/api/v1/sandwich",
    "/api/v1/timeline",
    "/api/v1/labels",
    "/api/v1/label_values",
    "/api/v1/processes",
    "/api/v1/download",
];

impl Reply {
    fn json(value: &impl Serialize) -> Self {
        Self {
            content_type: JSON,
            body: serde_json::to_vec(value).unwrap_or_default(),
            file_name: None,
        }
    }

    fn response(self, takes_gzip: bool) -> Response<Bytes> {
        let is_compressed = takes_gzip && self.body.len() >= MIN_COMPRESSED;
        let body = match is_compressed {
            true => profcol_pprof::gzip(&self.body),
            false => self.body,
        };
        let mut response = response(StatusCode::OK, self.content_type, body);
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let disposition = self
            .file_name
            .map(|name| format!("attachment; filename=\"{name}\""));
        if let Some(value) = disposition.and_then(|it| HeaderValue::try_from(it).ok()) {
            headers.insert(CONTENT_DISPOSITION, value);
        }
        encoded(response, is_compressed)
    }
}

fn encoded(mut response: Response<Bytes>, is_compressed: bool) -> Response<Bytes> {
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if is_compressed {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

fn guarded(mut response: Response<Bytes>) -> Response<Bytes> {
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT_ENCODING).into_iter();
    let mut accepted = accepted.filter_map(|value| value.to_str().ok());
    accepted.any(|value| value.split(',').any(|it| it.trim().starts_with("gzip")))
}

fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_waits_no_longer_is_told_so() {
        let late = within(Some(Duration::from_secs(1)), std::future::pending()).await;
        assert_eq!(late.status(), StatusCode::GATEWAY_TIMEOUT);
        let text = String::from_utf8(late.into_body().to_vec()).unwrap();
        assert_eq!(
            text,
            r#"{"code":"deadline_exceeded","message":"no answer within 1s; ask for a shorter time"}"#
        );
        let soon = async { response(StatusCode::OK, TEXT, "") };
        let soon = within(Some(Duration::from_secs(1)), soon).await;
        assert_eq!(soon.status(), StatusCode::OK);
    }
}
