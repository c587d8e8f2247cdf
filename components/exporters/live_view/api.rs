//! The page and the answers to what it asks.

use std::sync::{Arc, PoisonError, RwLock};

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
use profcol_net::grpc::Status;
use profcol_net::{HttpRequest, HttpService, response};
use serde::Serialize;
use serde_json::json;
use tokio::sync::Semaphore;

use super::assets::{self, Asset};
use super::history::{Answer, History};
use super::hosts::AllowedHosts;
use super::parameters::{BadRequest, Parameters, now};

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

/// Answers browsers.
pub(super) struct Api {
    questions: Arc<Questions>,
    hosts: AllowedHosts,
    assets: Vec<Asset>,
    queries: Semaphore,
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
            questions: Arc::new(Questions {
                history,
                max_memory,
            }),
            hosts,
            assets: assets::all(),
            queries: Semaphore::new(MAX_QUERIES),
        }
    }

    fn asset(&self, path: &str) -> Option<&Asset> {
        self.assets.iter().find(|asset| asset.path == path)
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
        if self.asset(path).is_none() && !PATHS.contains(&path) {
            return Err(guarded(response(
                StatusCode::NOT_FOUND,
                TEXT,
                "404 page not found\n",
            )));
        }
        if head.method != Method::GET && head.method != Method::HEAD {
            let mut refused = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, "use GET\n");
            refused
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return Err(guarded(refused));
        }
        Ok(())
    }

    async fn call(&self, request: HttpRequest) -> Response<Bytes> {
        let takes_gzip = takes_gzip(&request.headers);
        if let Some(asset) = self.asset(&request.path) {
            let is_known = asset.is(request.headers.get(IF_NONE_MATCH));
            let mut response = match is_known {
                true => response(StatusCode::NOT_MODIFIED, asset.content_type(), Bytes::new()),
                false => response(
                    StatusCode::OK,
                    asset.content_type(),
                    asset.bytes(takes_gzip),
                ),
            };
            asset.add_headers(&mut response);
            return guarded(encoded(response, takes_gzip && !is_known));
        }
        let Ok(_permit) = self.queries.acquire().await else {
            return guarded(response(
                StatusCode::SERVICE_UNAVAILABLE,
                TEXT,
                "stopping\n",
            ));
        };
        let parameters = Parameters::parse(request.query.as_deref());
        let questions = Arc::clone(&self.questions);
        let answer = tokio::task::spawn_blocking(move || {
            let reply = questions.answer(&request.path, &parameters)?;
            Ok::<_, BadRequest>(reply.response(takes_gzip))
        });
        let failed = |status, error: &dyn std::fmt::Display| {
            response(
                status,
                JSON,
                json!({"error": error.to_string()}).to_string(),
            )
        };
        guarded(match answer.await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => failed(StatusCode::BAD_REQUEST, &error),
            Err(error) => failed(StatusCode::INTERNAL_SERVER_ERROR, &error),
        })
    }

    fn refusal(&self, _: &HeaderMap, http: StatusCode, status: &Status) -> Response<Bytes> {
        let body = json!({"error": status.message}).to_string();
        guarded(response(http, JSON, body))
    }
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
