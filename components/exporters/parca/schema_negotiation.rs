//! Which schema a server is sent, where that is left open.
//!
//! Every Parca of the last years knows `v1` and shows all names of it; `v2` is for servers that are
//! not Parca's, since Parca loses the names of symbolized frames in it; `pprof` is what the oldest
//! know. See decision 12.

use std::sync::{Mutex, PoisonError};

use profcol_net::grpc::Status;

use super::config::SchemaChoice;
use super::messages::Schema;

/// In this order they are tried.
const ALL: [Schema; 3] = [Schema::V1, Schema::V2, Schema::Pprof];

/// What was found out of a server.
pub struct SchemaNegotiation {
    configured: Option<Schema>,
    /// None before the first batch was taken.
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

    /// The schemas to try, the likeliest first.
    pub fn candidates(&self) -> Vec<Schema> {
        if let Some(configured) = self.configured {
            return vec![configured];
        }
        let detected = *self.detected.lock().unwrap_or_else(PoisonError::into_inner);
        let others = ALL.into_iter().filter(|schema| Some(*schema) != detected);
        detected.into_iter().chain(others).collect()
    }

    /// The server took a batch.
    pub fn accepted(&self, schema: Schema) {
        let mut detected = self.detected.lock().unwrap_or_else(PoisonError::into_inner);
        if detected.replace(schema) != Some(schema) {
            tracing::info!(
                schema = schema.name(),
                "The server accepts profiles in this schema."
            );
        }
    }

    /// The server does not know the method.
    pub fn unsupported(&self, schema: Schema, status: &Status) {
        let detected = *self.detected.lock().unwrap_or_else(PoisonError::into_inner);
        // Another schema that is tried on the way is no news.
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
