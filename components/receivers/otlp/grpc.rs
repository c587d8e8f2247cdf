//! OTLP over gRPC.

use ::http::HeaderMap;
use bytes::Bytes;
use profcol_net::grpc::{Code, Status};
use profcol_net::{GrpcRequest, GrpcService, unknown_method};
use profcol_otlp::service::GRPC_PATH;
use profcol_profile::Profiles;

use super::export::{Export, Origin, keep_compressed};

pub(super) struct Service(pub(super) Export);

impl GrpcService for Service {
    fn admit(&self, path: &str, _: &HeaderMap) -> Result<(), Status> {
        if path == GRPC_PATH {
            Ok(())
        } else {
            Err(unknown_method(path))
        }
    }

    async fn call(&self, request: GrpcRequest) -> Result<Bytes, Status> {
        let message = request.message;
        let mut received = Profiles::from_wire(message.plain, self.0.validation)
            .map_err(|invalid| Status::new(Code::InvalidArgument, invalid.to_string()))?;
        if received.repaired.is_empty()
            && let Some(compressed) = message.compressed
        {
            received.profiles = received
                .profiles
                .with_compressed(keep_compressed(compressed));
        }
        let peer = request.connection.peer.ip();
        let origin = Origin::from_headers(&request.metadata, request.include_metadata, peer);
        let taken = self.0.push(received, request.reserved, origin).await?;
        Ok(taken.encode().into())
    }
}
