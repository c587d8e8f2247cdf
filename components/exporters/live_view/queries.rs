//! Answers the page's queries from the history.

use std::sync::Arc;

use http::HeaderValue;
use profcol_files::Format;
use profcol_flamegraph::{Document, Sandwich, difference_svg};
use serde_json::json;

use super::parameters::{BadRequest, Parameters, now};
use super::reply::{BINARY, JSON, Reply, TEXT};
use profcol_history::{History, QueryResult};

pub(super) const PATHS: [&str; 8] = [
    "/api/v1/status",
    "/api/v1/profile",
    "/api/v1/sandwich",
    "/api/v1/timeline",
    "/api/v1/labels",
    "/api/v1/label_values",
    "/api/v1/processes",
    "/api/v1/download",
];

pub(super) struct Queries {
    history: Arc<History>,
    max_memory: usize,
}

impl Queries {
    pub fn new(history: Arc<History>, max_memory: usize) -> Self {
        Self {
            history,
            max_memory,
        }
    }

    pub fn answer(&self, path: &str, parameters: &Parameters) -> Result<Reply, BadRequest> {
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
            "disk": extent.disk.map(|disk| json!({
                "directory": disk.directory,
                "bytes": disk.bytes,
                "max_bytes": disk.max_bytes,
                "oldest": disk.oldest,
                "newest": disk.newest,
                "damaged_segments": disk.damaged_segments,
                "failed_writes": disk.failed_writes,
            })),
        }))
    }

    fn profile(&self, parameters: &Parameters) -> Result<Reply, BadRequest> {
        let max_nodes = parameters.max_nodes()?;
        let QueryResult { tree, source } = self.tree(parameters)?;
        Ok(Reply::json(&Document::new(&tree, &source, max_nodes)))
    }

    fn sandwich(&self, parameters: &Parameters) -> Result<Reply, BadRequest> {
        let (name, binary) = (
            parameters.required("name")?,
            parameters.text("binary").unwrap_or(""),
        );
        let max_nodes = parameters.max_nodes()?;
        let QueryResult { tree, source } = self.tree(parameters)?;
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
        let QueryResult { tree, source } = self.tree(parameters)?;
        let difference = match source.is_comparison {
            true => "difference of ",
            false => "",
        };
        let title = format!("{difference}{} on {}", source.sample_type.name, host_name());
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
            "firefox" => (Format::Firefox, JSON, "firefox.json"),
            other => return Err(BadRequest::Format(other.to_owned())),
        };
        let body = match format {
            Format::Svg if source.is_comparison => {
                difference_svg(&tree, &source, &title, parameters.relation()?).into_bytes()
            }
            _ => profcol_files::write_tree(&tree, &source, format, &title)?,
        };
        Ok(Reply {
            content_type,
            body,
            file_name: Some(format!("profile-{}.{extension}", source.until / 1000)),
        })
    }

    fn tree(&self, parameters: &Parameters) -> Result<QueryResult, BadRequest> {
        let (query, base) = (parameters.query()?, parameters.base()?);
        self.history.resolve_symbols();
        Ok(self.read(|it| it.call_tree(&query, base.as_ref())))
    }

    fn read<T>(&self, read: impl FnOnce(&History) -> T) -> T {
        read(&self.history)
    }
}

fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}
