//! The state of the service for the page: its pipelines, component states, configuration and log.

use std::collections::BTreeMap;

use profcol_component::{
    BuildContext, CurrentService, DropFeedback, Meter, PipelineInfo, RecentLog, Series, Status,
    StatusBoard, Taps,
};
use serde::Serialize;

use super::parameters::{BadRequest, Parameters};
use super::reply::Reply;

pub(super) const PATHS: [&str; 3] = ["/api/v1/pipelines", "/api/v1/configuration", "/api/v1/log"];

pub(super) struct Service {
    pub info: CurrentService,
    board: StatusBoard,
    meter: Meter,
    log: RecentLog,
    pub taps: Taps,
    pub drops: DropFeedback,
}

#[derive(Serialize)]
struct Pipelines<'a> {
    pipelines: &'a [PipelineInfo],
    /// Components by kind and ID, such as `exporter otlp_grpc/backend`.
    components: BTreeMap<String, ComponentState>,
    metrics: Vec<Series>,
}

#[derive(Serialize)]
struct ComponentState {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Service {
    pub fn new(context: &BuildContext) -> Self {
        Self {
            info: context.shared.get(),
            board: context.shared.get(),
            meter: context.meter.clone(),
            log: context.shared.get(),
            taps: context.shared.get(),
            drops: context.shared.get(),
        }
    }

    pub fn answer(&self, path: &str, parameters: &Parameters) -> Result<Reply, BadRequest> {
        match path {
            "/api/v1/configuration" => Ok(Reply::json(&self.info.get().configuration)),
            "/api/v1/log" => Ok(Reply::json(
                &self.log.since(parameters.number("since")?.unwrap_or(0)),
            )),
            _ => Ok(self.pipelines()),
        }
    }

    fn pipelines(&self) -> Reply {
        let statuses = self.board.snapshot().into_iter();
        Reply::json(&Pipelines {
            pipelines: &self.info.get().pipelines,
            components: statuses
                .map(|(component, status)| (component, status.into()))
                .collect(),
            metrics: self.meter.series(),
        })
    }
}

impl From<Status> for ComponentState {
    fn from(status: Status) -> Self {
        let (status, error) = match status {
            Status::Starting => ("starting", None),
            Status::Ok => ("ok", None),
            Status::RecoverableError(error) => ("recoverable error", Some(error)),
            Status::PermanentError(error) => ("permanent error", Some(error)),
            Status::Stopping => ("stopping", None),
            Status::Stopped => ("stopped", None),
        };
        let error = error.map(|error| error.to_string());
        Self { status, error }
    }
}
