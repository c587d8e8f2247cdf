//! Takes profiles over OTLP.

mod config;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use profcol_component::{
    Batch, BuildContext, BuildError, Factory, Output, Receiver, Refusal, RunError, Stability,
    StartError, Stop,
};
use profcol_net::grpc::{Code, Status};
use profcol_net::{GrpcRequest, GrpcServer, GrpcService};
use profcol_profile::Profiles;

pub use self::config::OtlpConfig;
use self::config::Validation;

const EXPORT: &str = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";

/// How long running requests may take after a stop was asked for.
const GRACE: Duration = Duration::from_secs(5);

pub struct Otlp {
    config: OtlpConfig,
    server: Option<GrpcServer>,
}

impl Factory for Otlp {
    const NAME: &'static str = "otlp";
    const STABILITY: Stability = Stability::Beta;
    type Config = OtlpConfig;
    type Component = dyn Receiver;

    fn build(config: &OtlpConfig, _: &BuildContext) -> Result<Box<dyn Receiver>, BuildError> {
        Ok(Box::new(Otlp {
            config: config.clone(),
            server: None,
        }))
    }
}

#[async_trait]
impl Receiver for Otlp {
    async fn start(&mut self) -> Result<(), StartError> {
        if let Some(grpc) = &*self.config.protocols.grpc {
            let server = GrpcServer::bind(&grpc.endpoint);
            self.server = Some(server.map_err(|error| StartError(error.to_string()))?);
        }
        Ok(())
    }

    async fn run(self: Box<Self>, output: Output, stop: Stop) -> Result<(), RunError> {
        let Some(server) = self.server else {
            return Ok(());
        };
        let service = Export {
            validation: self.config.validation.into(),
            output: output.for_transport("grpc"),
        };
        let deadline = async move {
            stop.cancelled().await;
            tokio::time::Instant::now() + GRACE
        };
        server.serve(service, deadline).await;
        Ok(())
    }
}

struct Export {
    validation: profcol_profile::Validation,
    output: Output,
}

impl GrpcService for Export {
    fn knows(&self, path: &str) -> bool {
        path == EXPORT
    }

    async fn call(&self, request: GrpcRequest) -> Result<Bytes, Status> {
        let received = Profiles::from_wire(request.message.plain, self.validation)
            .map_err(|invalid| Status::new(Code::InvalidArgument, invalid.to_string()))?;
        let profiles = received.profiles;
        self.output
            .count_failed(received.repaired.values().sum::<usize>() as u64);
        if profiles.is_empty() {
            return Ok(Bytes::new());
        }
        let answer = self.output.push(Batch::new(profiles)).await;
        answer.map(|()| Bytes::new()).map_err(status)
    }
}

fn status(refusal: Refusal) -> Status {
    match refusal {
        Refusal::Retry { reason, after } => {
            Status::new(Code::Unavailable, reason).with_retry_delay(after.unwrap_or_default())
        }
        Refusal::Permanent { reason } => Status::new(Code::Internal, reason),
        Refusal::TooLarge { reason, .. } => Status::new(Code::ResourceExhausted, reason),
    }
}

impl From<Validation> for profcol_profile::Validation {
    fn from(validation: Validation) -> Self {
        match validation {
            Validation::Reject => Self::Reject,
            Validation::Repair => Self::Repair,
        }
    }
}
