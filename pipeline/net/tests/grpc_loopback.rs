//! Our gRPC client against our gRPC server, over loopback.

use std::future::pending;

use bytes::Bytes;
use http::HeaderMap;
use profcol_net::grpc::{Code, Status};
use profcol_net::{BoundAddr, GrpcCall, GrpcClient, GrpcRequest, GrpcServer, GrpcService, Message};

struct Echo;

impl GrpcService for Echo {
    fn knows(&self, path: &str) -> bool {
        path == "/test.Echo/Say"
    }

    async fn call(&self, request: GrpcRequest) -> Result<Bytes, Status> {
        Ok(request.message.plain)
    }
}

#[tokio::test]
async fn a_message_goes_there_and_back() {
    let server = GrpcServer::bind("127.0.0.1:0").unwrap();
    let BoundAddr::Tcp(addr) = *server.local_addr() else {
        panic!("not tcp")
    };
    tokio::spawn(server.serve(Echo, pending()));
    let client = GrpcClient::new(addr);
    for size in [0, 1, 20_000, 3_000_000] {
        let message = Message::from(Bytes::from(vec![7; size]));
        let call = GrpcCall {
            path: "/test.Echo/Say",
            message: &message,
            headers: HeaderMap::new(),
            timeout: None,
        };
        assert_eq!(client.unary(call).await.unwrap().message, message.plain);
    }
    let message = Message::from(Bytes::new());
    let call = GrpcCall {
        path: "/test.Echo/Shout",
        message: &message,
        headers: HeaderMap::new(),
        timeout: None,
    };
    assert_eq!(
        client.unary(call).await.unwrap_err(),
        Status::new(
            Code::Unimplemented,
            "unknown method Shout for service test.Echo"
        )
    );
}
