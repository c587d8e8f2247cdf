//! The effective configuration, with all defaults.

use profcol_component::{PipelineInfo, ServiceInfo};
use profcol_config::ComponentId;
use profcol_config::schema::redact;
use serde_json::{Map, Value};

use super::{Declared, Document, PipelineSettings, ServiceSettings};

impl Document {
    /// For status pages.
    pub(crate) fn info(&self) -> ServiceInfo {
        fn texts(ids: &[ComponentId]) -> Vec<String> {
            ids.iter().map(ToString::to_string).collect()
        }
        let pipelines = self.service.pipelines.iter();
        let pipelines = pipelines.map(|pipeline| PipelineInfo {
            id: pipeline.id.to_string(),
            receivers: texts(&pipeline.receivers),
            processors: texts(&pipeline.processors),
            exporters: texts(&pipeline.exporters),
        });
        ServiceInfo {
            pipelines: pipelines.collect(),
            // Cannot fail: configurations are serializable.
            configuration: self.resolved(true).unwrap_or_default(),
        }
    }

    /// All settings including defaults. `redacted` replaces secrets.
    pub fn resolved(&self, redacted: bool) -> Result<Value, serde_json::Error> {
        let mut document = Map::new();
        document.insert("receivers".to_owned(), section(&self.receivers, redacted)?);
        document.insert(
            "processors".to_owned(),
            section(&self.processors, redacted)?,
        );
        document.insert("exporters".to_owned(), section(&self.exporters, redacted)?);
        document.insert(
            "connectors".to_owned(),
            section(&self.connectors, redacted)?,
        );
        document.insert(
            "extensions".to_owned(),
            section(&self.extensions, redacted)?,
        );
        document.insert("service".to_owned(), self.resolved_service()?);
        Ok(Value::Object(document))
    }

    fn resolved_service(&self) -> Result<Value, serde_json::Error> {
        let service = &self.service;
        let settings = ServiceSettings {
            extensions: service.extensions.clone(),
            telemetry: service.telemetry.clone(),
            shutdown_timeout: service.shutdown_timeout,
            reload: service.reload.clone(),
            sandbox: service.sandbox.clone(),
        };
        let mut resolved = serde_json::to_value(settings)?;
        let mut pipelines = Map::new();
        for pipeline in &service.pipelines {
            let settings = PipelineSettings {
                receivers: pipeline.receivers.clone(),
                processors: pipeline.processors.clone(),
                exporters: pipeline.exporters.clone(),
            };
            pipelines.insert(pipeline.id.to_string(), serde_json::to_value(settings)?);
        }
        if let Some(map) = resolved.as_object_mut() {
            map.insert("pipelines".to_owned(), Value::Object(pipelines));
        }
        Ok(resolved)
    }
}

fn section<C: ?Sized>(
    declared: &[Declared<C>],
    redacted: bool,
) -> Result<Value, serde_json::Error> {
    let mut section = Map::new();
    for Declared { id, entry, config } in declared {
        let mut resolved = config.resolved()?;
        if redacted {
            redact(&mut resolved, &(entry.schema)());
        }
        section.insert(id.to_string(), resolved);
    }
    Ok(Value::Object(section))
}
