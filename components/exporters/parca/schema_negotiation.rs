//! Detects the schema that a server supports.
//!
//! Every recent Parca supports `v1` with all symbols; `v2` is for servers other than
//! Parca, since Parca loses the symbols of frames in it; `pprof` is for the oldest
//! versions. See decision 12.

use parking_lot::Mutex;

use profcol_net::grpc::Status;

use super::config::SchemaChoice;
use super::messages::Schema;

/// In the order in which they are tried.
const ALL: [Schema; 3] = [Schema::V1, Schema::V2, Schema::Pprof];

/// What is known about a server.
pub struct SchemaNegotiation {
    configured: Option<Schema>,
    /// `None` before the first accepted batch.
    detected: Mutex<Option<Schema>>,
}

impl SchemaNegotiation {
    pub fn new(configured: SchemaChoice) -> Self {
        Self {
            configured: match configured {
                SchemaChoice::Auto => None,
                SchemaChoice::V1 => Some(Schema::V1),
                SchemaChoice::V2 => Some(Schema::V2),
                SchemaChoice::Pprof => Some(Schema::Pprof),
            },
            detected: Mutex::new(None),
        }
    }

    /// The schemas to try, most likely first.
    pub fn candidates(&self) -> Vec<Schema> {
        if let Some(configured) = self.configured {
            return vec![configured];
        }
        let detected = *self.detected.lock();
        let others = ALL.into_iter().filter(|schema| Some(*schema) != detected);
        detected.into_iter().chain(others).collect()
    }

    /// The server accepted a batch.
    pub fn accepted(&self, schema: Schema) {
        let mut detected = self.detected.lock();
        if detected.replace(schema) != Some(schema) {
            tracing::info!(
                schema = schema.name(),
                "The server accepts profiles in this schema."
            );
        }
    }

    /// The server does not implement the method.
    pub fn unsupported(&self, schema: Schema, status: &Status) {
        let detected = *self.detected.lock();
        // Do not log other schemas tried on the way.
        if detected.is_none_or(|detected| detected == schema) {
            let schema = schema.name();
            tracing::info!(schema, %status, "The server does not support this schema.");
        }
    }
}

impl Schema {
    fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
            Self::Pprof => "pprof",
        }
    }
}
