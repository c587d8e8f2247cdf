//! Sends profiles to a Parca server.

mod config;
mod debuginfo;
mod dialogue;
mod token;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use profcol_component::{
    Batch, BuildContext, BuildError, Delivered, Delivery, Exporter, Factory, Refusal, RunError,
    Stability, StartError, Stop,
};
use profcol_config::ComponentId;
use profcol_net::auth::ClientAuth;
use profcol_net::grpc::Code;
use profcol_net::{Compression, GrpcClient, GrpcClientSettings, retry};
use profcol_parca::{LabelRules, Version};

pub use self::config::ParcaConfig;
use self::config::SchemaChoice;
use self::debuginfo::Debuginfo;
use self::dialogue::{Failure, send_v1, send_v2};
use self::token::Token;
use crate::shared::otlp::{SizeLimit, USER_AGENT, client_auth, not_started, refusal};

pub struct Parca {
    id: ComponentId,
    config: ParcaConfig,
    rules: Arc<LabelRules>,
    auth: Option<Arc<dyn ClientAuth>>,
    client: OnceLock<GrpcClient>,
    debuginfo: Option<Arc<Debuginfo>>,
    limit: SizeLimit,
    /// The server has said that it does not know the older layout's method.
    is_v1_unknown: AtomicBool,
    is_choice_told: AtomicBool,
}

impl Factory for Parca {
    const NAME: &'static str = "parca";
    const STABILITY: Stability = Stability::Alpha;
    type Config = ParcaConfig;
    type Component = dyn Exporter;

    fn build(
        config: &ParcaConfig,
        context: &BuildContext,
    ) -> Result<Box<dyn Exporter>, BuildError> {
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
        Ok(Box::new(Parca {
            id: context.id.clone(),
            rules: Arc::new(config.label_rules()),
            auth,
            client: OnceLock::new(),
            debuginfo: Debuginfo::new(&config.debuginfo, &config.client.endpoint, context),
            limit: SizeLimit::new(config.max_request_size_mib),
            is_v1_unknown: AtomicBool::new(false),
            is_choice_told: AtomicBool::new(false),
            config: config.clone(),
        }))
    }
}

#[async_trait]
impl Exporter for Parca {
    fn delivery(&self) -> Delivery {
        self.config.delivery.delivery()
    }

    async fn start(&self) -> Result<(), StartError> {
        let client = GrpcClient::new(&self.config.client, self.auth.clone(), USER_AGENT)
            .map_err(|error| not_started(&self.id, error))?;
        self.client.get_or_init(|| client);
        Ok(())
    }

    async fn run(self: Arc<Self>, stop: Stop) -> Result<(), RunError> {
        match &self.debuginfo {
            Some(debuginfo) => debuginfo.run(self.own_client()?, stop).await,
            None => stop.cancelled().await,
        }
        Ok(())
    }

    async fn export(&self, batch: &Batch) -> Result<Delivered, Refusal> {
        let client = self
            .client
            .get()
            .ok_or_else(|| Refusal::retry("not started yet"))?;
        // Nothing that is written of a batch is longer than the batch's own bytes by much.
        self.limit.check(batch.profiles.encoded_len())?;
        let mut version = self.version();
        loop {
            match self.send(client, batch, version).await {
                Ok(()) => {
                    self.tell(version);
                    if let Some(debuginfo) = &self.debuginfo {
                        debuginfo.seen(&batch.profiles);
                    }
                    return Ok(Delivered::default());
                }
                Err(Failure::Refused { status, .. })
                    if status.code == Code::Unimplemented
                        && version == Version::V1
                        && self.config.schema == SchemaChoice::Auto =>
                {
                    tracing::info!(
                        %status,
                        "The server does not take profiles in schema v1: sending v2."
                    );
                    self.is_v1_unknown.store(true, Ordering::Relaxed);
                    version = Version::V2;
                }
                Err(failure) => return Err(self.refused(failure)),
            }
        }
    }
}

impl Parca {
    /// One on which nothing is compressed.
    fn own_client(&self) -> Result<GrpcClient, RunError> {
        let settings = GrpcClientSettings {
            compression: Compression::None,
            ..self.config.client.clone()
        };
        GrpcClient::new(&settings, self.auth.clone(), USER_AGENT)
            .map_err(|error| RunError(not_started(&self.id, error).0))
    }

    fn version(&self) -> Version {
        match self.config.schema {
            SchemaChoice::V2 => Version::V2,
            SchemaChoice::Auto if self.is_v1_unknown.load(Ordering::Relaxed) => Version::V2,
            SchemaChoice::Auto | SchemaChoice::V1 => Version::V1,
        }
    }

    fn tell(&self, version: Version) {
        if !self.is_choice_told.swap(true, Ordering::Relaxed) {
            tracing::info!(schema = version.name(), "The server takes profiles.");
        }
    }

    async fn send(
        &self,
        client: &GrpcClient,
        batch: &Batch,
        version: Version,
    ) -> Result<(), Failure> {
        let profiles = &batch.profiles;
        let timeout = self.config.delivery.limit();
        match version {
            Version::V1 => send_v1(client, profiles, &self.rules, timeout).await,
            Version::V2 => send_v2(client, profiles, &self.rules, timeout).await,
        }
    }

    fn refused(&self, failure: Failure) -> Refusal {
        match failure {
            Failure::Defect(error) => Refusal::permanent(error.to_string()),
            Failure::Broken(error) => Refusal::permanent(format!("encoding failed: {error}")),
            Failure::Refused { status, bytes } => {
                let reason = status.to_string();
                if status.code == Code::ResourceExhausted && status.message.contains("larger than")
                {
                    return self.limit.learn(bytes, None, reason);
                }
                refusal(retry::of_grpc(&status), reason)
            }
        }
    }
}
