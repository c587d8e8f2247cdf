//! The pages, in HTML without scripts.

use std::collections::BTreeMap;
use std::time::Instant;

use bytes::Bytes;
use http::header::CACHE_CONTROL;
use http::{HeaderValue, Response, StatusCode};
use jiff::Timestamp;
use profcol_component::{BuildContext, CurrentService, Meter, Series, Status, StatusBoard};
use profcol_config::Duration;
use profcol_net::response;
use profcol_printable::markup;

pub(super) const SERVICE: &str = "/debug/servicez";
const PIPELINES: &str = "/debug/pipelinez";
const EXTENSIONS: &str = "/debug/extensionz";
const STYLE: &str = "/debug/style.css";

const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const CSS: HeaderValue = HeaderValue::from_static("text/css; charset=utf-8");

const STYLE_SHEET: &str = "\
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { margin: 1.5rem auto; max-width: 70rem; padding: 0 1rem; }
nav a { margin-right: 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { border: 1px solid #8886; padding: .25rem .6rem; text-align: left; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.error { color: #b3261e; }
@media (prefers-color-scheme: dark) { .error { color: #ff8a80; } }
";

pub(super) struct Pages {
    current: CurrentService,
    board: StatusBoard,
    meter: Meter,
    started: (Timestamp, Instant),
}

impl Pages {
    pub fn new(context: &BuildContext) -> Self {
        Self {
            current: context.shared.get(),
            board: context.shared.get(),
            meter: context.meter.clone(),
            started: (Timestamp::now(), Instant::now()),
        }
    }

    pub fn has(path: &str) -> bool {
        [SERVICE, PIPELINES, EXTENSIONS, STYLE].contains(&path)
    }

    pub fn answer(&self, path: &str) -> Response<Bytes> {
        let (kind, text) = match path {
            STYLE => (CSS, STYLE_SHEET.to_owned()),
            PIPELINES => (HTML, page("Pipelines", &self.pipelines())),
            EXTENSIONS => (HTML, page("Extensions", &self.extensions())),
            _ => (HTML, page("Service", &self.service())),
        };
        let mut answer = response(StatusCode::OK, kind, text);
        let no_store = HeaderValue::from_static("no-store");
        answer.headers_mut().insert(CACHE_CONTROL, no_store);
        answer
    }

    fn service(&self) -> String {
        let (time, instant) = self.started;
        let rows = [
            ("Version", format!("profcol {}", env!("CARGO_PKG_VERSION"))),
            ("Built for", format!("{}-linux", std::env::consts::ARCH)),
            ("PID", std::process::id().to_string()),
            ("Started", time.to_string()),
            ("Uptime", Duration::from(instant.elapsed()).to_string()),
        ];
        let rows = rows.map(|(name, value)| row(&[cell(name), cell(&value)]));
        let components = self.board.snapshot();
        let states = components
            .iter()
            .map(|(name, status)| row(&[cell(name), state(Some(status))]));
        table(&["Property", "Value"], rows)
            + "<h2>Components</h2>"
            + &table(&["Component", "State"], states)
    }

    fn pipelines(&self) -> String {
        let components = self.board.snapshot();
        let named = |kind: &str, ids: &[String], suffix: &str| {
            let of_id = |id: &String| {
                // A connector is an exporter of some pipelines and a receiver of others.
                let labels = [format!("{kind} {id}{suffix}"), format!("connector {id}")];
                match labels.iter().find_map(|label| components.get(label)) {
                    Some(status) if *status != Status::Ok => {
                        format!("{} ({})", markup(id), text_of(status))
                    }
                    _ => markup(id).into_owned(),
                }
            };
            let ids: Vec<String> = ids.iter().map(of_id).collect();
            format!("<td>{}</td>", ids.join("<br>"))
        };
        let service = self.current.get();
        let rows = service.pipelines.iter().map(|pipeline| {
            let suffix = format!(" in pipeline {}", pipeline.id);
            row(&[
                cell(&pipeline.id),
                named("receiver", &pipeline.receivers, ""),
                named("processor", &pipeline.processors, &suffix),
                named("exporter", &pipeline.exporters, ""),
            ])
        });
        let pipelines = table(&["Pipeline", "Receivers", "Processors", "Exporters"], rows);
        let series = self.meter.series();
        pipelines + "<h2>Metrics of the components</h2>" + &metrics(&series)
    }

    fn extensions(&self) -> String {
        let components = self.board.snapshot();
        let service = self.current.get();
        let ids = &service.configuration["service"]["extensions"];
        let ids = ids.as_array().into_iter().flatten();
        let rows = ids.filter_map(|id| id.as_str()).map(|id| {
            let status = components.get(&format!("extension {id}"));
            row(&[cell(id), state(status)])
        });
        table(&["Extension", "State"], rows)
    }
}

/// The metrics that have a component's label, except those that count nothing yet.
fn metrics(series: &[Series]) -> String {
    const KINDS: [&str; 3] = ["receiver", "processor", "exporter"];
    let mut by_component: BTreeMap<(usize, &str), Vec<&Series>> = BTreeMap::new();
    for series in series.iter().filter(|it| it.value != 0.0) {
        for (position, kind) in KINDS.into_iter().enumerate() {
            if let Some(id) = series.labels.get(kind) {
                let of_component = by_component.entry((position, id)).or_default();
                of_component.push(series);
            }
        }
    }
    let rows = by_component.iter().flat_map(|((position, id), series)| {
        let kind = KINDS.get(*position).copied().unwrap_or_default();
        series.iter().map(move |series| {
            let more = series.labels.iter().filter(|(name, _)| *name != kind);
            let more: Vec<String> = more
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            row(&[
                cell(&format!("{kind} {id}")),
                cell(&series.name),
                cell(&more.join(", ")),
                format!("<td class=\"number\">{}</td>", series.value),
            ])
        })
    });
    table(&["Component", "Metric", "Labels", "Value"], rows)
}

fn text_of(status: &Status) -> String {
    let (name, error) = match status {
        Status::Starting => ("starting", None),
        Status::Ok => ("ok", None),
        Status::RecoverableError(error) => ("recoverable error", Some(error)),
        Status::PermanentError(error) => ("permanent error", Some(error)),
        Status::Stopping => ("stopping", None),
        Status::Stopped => ("stopped", None),
    };
    match error {
        Some(error) => format!(
            "<span class=\"error\">{name}: {}</span>",
            markup(&error.to_string())
        ),
        None => name.to_owned(),
    }
}

fn state(status: Option<&Status>) -> String {
    format!("<td>{}</td>", status.map(text_of).unwrap_or_default())
}

fn page(title: &str, content: &str) -> String {
    format!(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>profcol: {title}</title>\
         <link rel=\"stylesheet\" href=\"{STYLE}\"></head><body><nav><a href=\"{SERVICE}\">Service</a>\
         <a href=\"{PIPELINES}\">Pipelines</a><a href=\"{EXTENSIONS}\">Extensions</a></nav><h1>{title}</h1>{content}</body></html>\n"
    )
}

fn table(names: &[&str], rows: impl IntoIterator<Item = String>) -> String {
    let names: String = names.iter().map(|it| format!("<th>{it}</th>")).collect();
    let rows: String = rows.into_iter().collect();
    format!("<table><tr>{names}</tr>{rows}</table>")
}

fn row(cells: &[String]) -> String {
    format!("<tr>{}</tr>", cells.concat())
}

fn cell(text: &str) -> String {
    format!("<td>{}</td>", markup(text))
}
