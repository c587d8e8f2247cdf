//! Serves pages that show the service, its pipelines and its extensions while it runs.

mod config;
mod pages;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::HOST;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use parking_lot::Mutex;
use profcol_component::{
    BuildContext, BuildError, Capabilities, Check, Extension, Factory, Listening, RunError,
    Stability, StartError, Stop, files,
};
use profcol_net::grpc::Status;
use profcol_net::{
    AllowedHosts, HttpRequest, HttpServer, HttpService, ListeningSockets, guarded, response,
};

pub use self::config::ZPagesConfig;
use self::pages::Pages;

/// How long requests in flight may take after a stop.
const GRACE: Duration = Duration::from_secs(1);

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

pub struct ZPages {
    config: ZPagesConfig,
    pages: Arc<Pages>,
    sockets: ListeningSockets,
    /// Set between start and run.
    server: Mutex<Option<HttpServer>>,
}

impl Factory for ZPages {
    const NAME: &'static str = "zpages";
    const STABILITY: Stability = Stability::Beta;
    /// Two instances would listen on one address.
    const IS_EXCLUSIVE: bool = true;
    type Config = ZPagesConfig;
    type Component = dyn Extension;

    fn capabilities(config: &ZPagesConfig) -> Capabilities {
        Capabilities::to_listen(&config.endpoint)
    }

    fn writes(config: &ZPagesConfig) -> Vec<PathBuf> {
        files::socket_directory(&config.endpoint)
            .into_iter()
            .collect()
    }

    fn build(
        config: &ZPagesConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Extension>, BuildError> {
        Ok(Box::new(ZPages::new(config, context)))
    }
}

impl ZPages {
    fn new(config: &ZPagesConfig, context: &BuildContext) -> Self {
        Self {
            config: config.clone(),
            pages: Arc::new(Pages::new(context)),
            sockets: context.shared.get(),
            server: Mutex::new(None),
        }
    }
}

#[async_trait]
impl Extension for ZPages {
    async fn start(&self) -> Result<(), StartError> {
        let server = HttpServer::bind(&self.config.server(), None, &self.sockets)
            .map_err(StartError::new)?;
        tracing::info!(endpoint = %server.local_addr(), "Serving zPages.");
        *self.server.lock() = Some(server);
        Ok(())
    }

    async fn check(&self) -> Vec<Check> {
        let is_protected = self.config.asks_for_certificates();
        Listening::new("listen", &self.config.endpoint, false, is_protected)
            .check()
            .await
    }

    async fn run(self: Arc<Self>, stop: Stop) -> Result<(), RunError> {
        let Some(server) = self.server.lock().take() else {
            return Ok(());
        };
        let answers = Answers {
            pages: Arc::clone(&self.pages),
            hosts: AllowedHosts::new(&self.config.endpoint, &self.config.allowed_hosts),
        };
        server.serve(answers, stop.deadline(GRACE)).await;
        Ok(())
    }
}

struct Answers {
    pages: Arc<Pages>,
    hosts: AllowedHosts,
}

impl HttpService for Answers {
    fn admit(&self, head: &Parts) -> Result<(), Response<Bytes>> {
        let refusal = |status, text: String| guarded(response(status, TEXT, text));
        // HTTP/2 has the host in the URI.
        let host = head.headers.get(HOST).and_then(|host| host.to_str().ok());
        let host = host.or(head.uri.host()).unwrap_or("");
        if !self.hosts.contains(host) {
            let text =
                format!("the host {host:?} is not allowed; add it to `allowed_hosts` of zpages\n");
            return Err(refusal(StatusCode::MISDIRECTED_REQUEST, text));
        }
        if !Pages::has(head.uri.path()) {
            let text = format!("404 page not found; see {}\n", pages::SERVICE);
            return Err(refusal(StatusCode::NOT_FOUND, text));
        }
        if head.method != Method::GET && head.method != Method::HEAD {
            return Err(refusal(
                StatusCode::METHOD_NOT_ALLOWED,
                "use GET\n".to_owned(),
            ));
        }
        Ok(())
    }

    async fn call(&self, request: HttpRequest) -> Response<Bytes> {
        guarded(self.pages.answer(&request.path))
    }

    fn refusal(&self, _: &HeaderMap, http: StatusCode, status: &Status) -> Response<Bytes> {
        guarded(response(http, TEXT, format!("{}\n", status.message)))
    }
}
