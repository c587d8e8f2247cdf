//! Sends profiles to a Parca server.
//!
//! ```text
//! batch ─► Messages (encoded, measured) ─► turn ─► call ─► answer
//!             │ too long                              │        └ unimplemented: try the next schema
//!             └ the engine splits it                  └ retried alone, if the connection was lost
//! ```

mod config;
mod debuginfo;
mod messages;
mod poison_detector;
mod schema_negotiation;
#[cfg(test)]
mod tests;
mod token;
mod write_stream;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use http::HeaderMap;
use profcol_component::{
    Batch, BuildContext, BuildError, Capabilities, Check, Delivered, Delivery, Exporter, Factory,
    IntCounter, Refusal, RunError, Stability, StartError, Stop, path_check,
};
use profcol_config::ComponentId;
use profcol_net::auth::ClientAuth;
use profcol_net::grpc::{Code, Status};
use profcol_net::{
    ClientError, Compression, ErrorAt, GrpcCall, GrpcClient, GrpcClientSettings, retry,
};
use profcol_parca::LabelRules;
use profcol_parca::service::{WRITE_ARROW, WRITE_RAW};
use profcol_profile::Profiles;

pub use self::config::ParcaConfig;
use self::debuginfo::Debuginfo;
use self::messages::{EncodeOptions, Lines, Messages, Schema};
use self::poison_detector::PoisonDetector;
use self::schema_negotiation::SchemaNegotiation;
use self::token::Token;
use self::write_stream::{SendError, send};
use crate::shared::handshake;
use crate::shared::otlp::{SizeLimit, USER_AGENT, client_auth, not_created, refusal};

pub struct Parca {
    id: ComponentId,
    config: ParcaConfig,
    rules: Arc<LabelRules>,
    auth: Option<Arc<dyn ClientAuth>>,
    client: OnceLock<GrpcClient>,
    debuginfo: Option<Arc<Debuginfo>>,
    limit: SizeLimit,
    schema: SchemaNegotiation,
    poison_detector: PoisonDetector,
    /// Whether the server accepts lines only without columns.
    omits_columns: AtomicBool,
    given_up_samples: IntCounter,
}

/// A message up to this size is slow only if the server is busy, so it is not split after a timeout.
const SPLIT_ON_TIMEOUT_BYTES: usize = 1 << 20;

/// The fix if a server does not implement Parca's calls.
const NO_PARCA: &str = "set `endpoint` to the gRPC address of a Parca server, by default port 7070";

/// Minimum size of the pieces of a batch in one step: the encoded size may be smaller than
/// the limit suggests, and a sample that does not fit into a piece is lost.
const MIN_SPLIT_BYTES: usize = 1 << 20;

impl Factory for Parca {
    const NAME: &'static str = "parca";
    const STABILITY: Stability = Stability::Alpha;
    type Config = ParcaConfig;
    type Component = dyn Exporter;

    fn capabilities(config: &ParcaConfig) -> Capabilities {
        let mut needed = Capabilities::to_connect(&config.client.endpoint);
        if config.debuginfo.upload {
            // Debug files are looked up below the root directory of the process.
            needed |= Capabilities::SYS_PTRACE;
        }
        needed
    }

    fn writes(config: &ParcaConfig) -> Vec<PathBuf> {
        let directory = &config.debuginfo.state_directory;
        match directory.is_empty() {
            true => Vec::new(),
            false => vec![PathBuf::from(directory)],
        }
    }

    fn build(
        config: &ParcaConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Exporter>, BuildError> {
        Ok(Box::new(Parca::new(config, context)?))
    }
}

impl Parca {
    fn new(config: &ParcaConfig, context: &BuildContext) -> Result<Self, BuildError> {
        let token = if !config.bearer_token_file.is_empty() {
            Some(Token::File(config.bearer_token_file.clone()))
        } else if !config.bearer_token.is_empty() {
            Some(Token::Known(config.bearer_token.clone()))
        } else {
            None
        };
        let auth = match token {
            Some(token) => Some(Arc::new(token) as Arc<dyn ClientAuth>),
            None => client_auth(config.client.auth.as_ref(), context)?,
        };
        Ok(Self {
            id: context.id.clone(),
            rules: Arc::new(config.label_rules()),
            auth,
            client: OnceLock::new(),
            debuginfo: Debuginfo::new(&config.debuginfo, &config.client.endpoint, context),
            limit: SizeLimit::new(config.max_request_size_mib),
            schema: SchemaNegotiation::new(config.schema),
            poison_detector: PoisonDetector::default(),
            omits_columns: AtomicBool::new(false),
            given_up_samples: given_up_samples(context),
            config: config.clone(),
        })
    }
}

#[async_trait]
impl Exporter for Parca {
    fn delivery(&self) -> Delivery {
        // Each call has its own timeout, so that a slow one can be split into smaller messages.
        Delivery {
            timeout: None,
            ..self.config.delivery.delivery()
        }
    }

    async fn start(&self) -> Result<(), StartError> {
        self.create_client().map(drop).map_err(StartError::new)
    }

    async fn check(&self) -> Vec<Check> {
        let client = match self.create_client() {
            Ok(client) => client,
            Err(error) => return vec![handshake::settings_check(&error)],
        };
        let call = |path| async move {
            let call = GrpcCall {
                path,
                message: &handshake::empty_message(),
                headers: HeaderMap::new(),
                timeout: Some(handshake::TIMEOUT / 2),
            };
            client.unary(call).await
        };
        // Servers support one of them or both.
        let mut answer = call(WRITE_RAW).await;
        if matches!(&answer, Err(status) if status.code == Code::Unimplemented) {
            answer = call(WRITE_ARROW).await;
        }
        let endpoint = &self.config.client.endpoint;
        let mut checks = vec![handshake::grpc_check(endpoint, answer, NO_PARCA)];
        let state = &self.config.debuginfo.state_directory;
        if !state.is_empty() {
            checks.extend(path_check::of_directory(Path::new(state), true).await);
        }
        checks
    }

    async fn run(self: Arc<Self>, stop: Stop) -> Result<(), RunError> {
        match &self.debuginfo {
            Some(debuginfo) => debuginfo.run(self.uncompressed_client()?, stop).await,
            None => stop.cancelled().await,
        }
        Ok(())
    }

    async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        let delivered = self.deliver(&batch.profiles).await;
        delivered.map(|()| Delivered::default())
    }
}

impl Parca {
    fn create_client(&self) -> Result<&GrpcClient, ErrorAt<ClientError>> {
        let client = GrpcClient::new(&self.config.client, self.auth.clone(), USER_AGENT)
            .map_err(|error| not_created(&self.id, error))?;
        Ok(self.client.get_or_init(|| client))
    }

    async fn deliver(&self, profiles: &Profiles) -> Result<(), Refusal> {
        let client = self
            .client
            .get()
            .ok_or_else(|| Refusal::retry("not started yet"))?;
        if profiles.is_empty() {
            return Ok(());
        }
        let candidates = self.schema.candidates();
        let is_auto = candidates.len() > 1;
        let mut unsupported = None;
        for schema in candidates {
            match self.deliver_in(schema, client, profiles).await {
                Ok(()) => {
                    self.schema.accepted(schema);
                    if let Some(debuginfo) = &self.debuginfo {
                        debuginfo.record_samples(profiles);
                    }
                    return Ok(());
                }
                Err(SendError::Refused { status, .. })
                    if is_auto && status.code == Code::Unimplemented =>
                {
                    self.schema.unsupported(schema, &status);
                    unsupported = Some(status);
                }
                Err(failure) => return Err(self.refused(profiles, failure)),
            }
        }
        let status = unsupported.map_or_else(String::new, |status| status.to_string());
        let reason = format!("the server supports none of the three schemas: {status}");
        Err(Refusal::permanent(reason))
    }

    /// A client without compression.
    fn uncompressed_client(&self) -> Result<GrpcClient, RunError> {
        let settings = GrpcClientSettings {
            compression: Compression::None,
            ..self.config.client.clone()
        };
        GrpcClient::new(&settings, self.auth.clone(), USER_AGENT)
            .map_err(|error| RunError::new(not_created(&self.id, error)))
    }

    async fn deliver_in(
        &self,
        schema: Schema,
        client: &GrpcClient,
        profiles: &Profiles,
    ) -> Result<(), SendError> {
        let mut options = EncodeOptions {
            rules: Arc::clone(&self.rules),
            schema,
            lines: if self.omits_columns.load(Ordering::Relaxed) {
                Lines::WithoutColumns
            } else {
                Lines::WithColumns
            },
        };
        let sent = self.encode_and_send(client, profiles, &options).await;
        let Err(SendError::Refused { status, .. }) = &sent else {
            return sent;
        };
        if !may_reject_columns(status)
            || schema != Schema::V1
            || options.lines == Lines::WithoutColumns
        {
            return sent;
        }
        options.lines = Lines::WithoutColumns;
        match self.encode_and_send(client, profiles, &options).await {
            Ok(()) => {}
            // Columns are not the reason, and the first answer is more specific.
            Err(SendError::Refused { status, .. }) if may_reject_columns(&status) => return sent,
            Err(failure) => return Err(failure),
        }
        if !self.omits_columns.swap(true, Ordering::Relaxed) {
            tracing::info!(%status, "The server does not support line columns; omitting them.");
        }
        Ok(())
    }

    async fn encode_and_send(
        &self,
        client: &GrpcClient,
        profiles: &Profiles,
        options: &EncodeOptions,
    ) -> Result<(), SendError> {
        let messages = Messages::encode(profiles, options).await?;
        let bytes = messages.longest();
        self.limit
            .check(bytes)
            .map_err(|refusal| SendError::TooLarge { refusal, bytes })?;
        let sending = send(client, &messages, self.config.delivery.limit());
        self.poison_detector.send(messages.first(), sending).await
    }

    fn refused(&self, profiles: &Profiles, failure: SendError) -> Refusal {
        match failure {
            SendError::TooLarge { refusal, bytes } => in_pieces(refusal, bytes, profiles),
            SendError::Encode(error) => Refusal::permanent(error),
            SendError::Poisoned { .. } => {
                let samples = profiles.sample_count() as u64;
                self.given_up_samples.inc_by(samples);
                Refusal::permanent(failure)
            }
            SendError::Refused { status, bytes } => self.refused_by(status, bytes, profiles),
        }
    }

    fn refused_by(&self, status: Status, bytes: usize, profiles: &Profiles) -> Refusal {
        if status.message_too_large().is_some() {
            let refusal = self.limit.learn(bytes, None, status);
            return in_pieces(refusal, bytes, profiles);
        }
        // The server reads for at most five seconds.
        if status.is_read_timeout() && bytes > SPLIT_ON_TIMEOUT_BYTES && profiles.sample_count() > 1
        {
            let limit_bytes = bytes / 2;
            let refusal = Refusal::TooLarge {
                reason: status.into(),
                limit_bytes,
            };
            return in_pieces(refusal, bytes, profiles);
        }
        refusal(retry::of_grpc(&status), status)
    }
}

/// Whether the status may be the server's error for unknown fields.
fn may_reject_columns(status: &Status) -> bool {
    matches!(
        status.code,
        Code::InvalidArgument | Code::Internal | Code::Unknown
    )
}

/// Converts the limit of a message to that of a batch, which the engine splits: the encoded
/// message may be ten times as large as the batch, or smaller.
fn in_pieces(refusal: Refusal, message_bytes: usize, profiles: &Profiles) -> Refusal {
    let Refusal::TooLarge {
        reason,
        limit_bytes,
    } = refusal
    else {
        return refusal;
    };
    let bytes = profiles.encoded_len();
    let scaled = bytes as u128 * limit_bytes as u128 / message_bytes.max(1) as u128;
    let scaled = usize::try_from(scaled).unwrap_or(usize::MAX);
    let limit_bytes = match scaled.max(MIN_SPLIT_BYTES) {
        piece if piece < bytes => piece,
        _ => bytes / 2,
    };
    Refusal::TooLarge {
        reason,
        limit_bytes,
    }
}

fn given_up_samples(context: &BuildContext) -> IntCounter {
    let id = context.id.to_string();
    context.meter.counter(
        "otelcol_exporter_parca_given_up_profile_samples",
        "Samples dropped because their batch repeatedly broke the connection.",
        &[("exporter", id.as_str())],
    )
}
