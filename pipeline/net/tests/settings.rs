//! Parsing and validation of settings.

#![allow(
    clippy::unwrap_used,
    reason = "a panic fails the test and ends its tasks"
)]

use profcol_config::{Config, Duration, Problems, Sources, load, yaml};
use profcol_net::{
    Balancer, Compression, GrpcClientSettings, GrpcServerSettings, HttpClientSettings,
    HttpServerSettings, Transport,
};

fn read<T: Config>(text: &str) -> Result<T, String> {
    let mut sources = Sources::default();
    let id = sources.add("test.yaml", text, None).expect("small");
    let node = yaml::parse(&sources, id).expect("valid YAML");
    let mut problems = Problems::default();
    load(&node, &mut problems).ok_or_else(|| problems.to_string())
}

#[test]
fn defaults_with_an_endpoint_are_valid() {
    assert_eq!(
        read::<GrpcServerSettings>("{}"),
        Ok(GrpcServerSettings::default())
    );
    assert_eq!(
        read::<HttpServerSettings>("{}"),
        Ok(HttpServerSettings::default())
    );
    assert_eq!(
        read::<HttpClientSettings>("{}"),
        Ok(HttpClientSettings::default())
    );
    assert_eq!(
        read::<GrpcClientSettings>("{}").unwrap_err(),
        "requires a non-empty \"endpoint\""
    );
}

#[test]
fn reads_settings() {
    let server: GrpcServerSettings = read(
        "{endpoint: /run/p.sock, transport: unix, max_recv_msg_size_mib: 8, include_metadata: true, auth: {authenticator: basicauth/a}, keepalive: {server_parameters: {max_connection_age: 1h}, enforcement_policy: {min_time: 10s}}, tls: {cert_file: c, key_file: k, client_ca_file: a, min_version: '1.3'}}",
    )
    .unwrap();
    assert_eq!(server.transport, Transport::Unix);
    assert_eq!(
        server.keepalive.server_parameters.max_connection_age,
        Duration::from_secs(3600)
    );
    assert_eq!(
        server.auth.unwrap().authenticator.to_string(),
        "basicauth/a"
    );
    assert_eq!(server.tls.0.unwrap().client_ca_file, "a");

    let client: GrpcClientSettings =
        read("{endpoint: 'h:1', compression: '', balancer_name: pick_first, keepalive: , headers: {a: b}}").unwrap();
    assert_eq!(
        (client.compression, client.balancer_name),
        (Compression::None, Balancer::PickFirst)
    );
    assert!(client.keepalive.is_some());
    assert_eq!(client.headers.iter().count(), 1);

    let client: HttpClientSettings =
        read("{compression: x-snappy-framed, idle_conn_timeout: 5s, disable_keep_alives: true}")
            .unwrap();
    assert_eq!(client.compression, Compression::SnappyFramed);
}

#[test]
fn rejects_invalid_settings() {
    fn check<T: Config>(text: &str, expected: &str) {
        let message = read::<T>(text)
            .err()
            .unwrap_or_else(|| panic!("accepted: {text}"));
        assert!(message.contains(expected), "{text}: {message}");
    }
    check::<GrpcServerSettings>("{endpoint: ''}", "endpoint: must not be empty");
    check::<GrpcServerSettings>(
        "{endpoint: localhost}",
        "endpoint: address localhost: missing port in address",
    );
    check::<GrpcServerSettings>(
        "{max_recv_msg_size_mib: 0}",
        "max_recv_msg_size_mib: must be positive",
    );
    check::<GrpcServerSettings>("{max_connections: 0}", "max_connections: must be positive");
    check::<GrpcServerSettings>(
        "{tls: }",
        "tls: TLS configuration must include both certificate and key",
    );
    check::<GrpcServerSettings>("{tls: {tpm: {enabled: true}}}", "tpm");
    check::<GrpcServerSettings>("{middlewares: [a]}", "middlewares");
    check::<GrpcServerSettings>(
        "{keepalive: {server_parameters: {time: -1s}}}",
        "keepalive::server_parameters::time: must be non-negative",
    );
    check::<HttpServerSettings>(
        "{idle_timeout: 5s, keepalive: {idle_timeout: 6s}}",
        "keepalive: cannot use the old keys",
    );
    check::<HttpServerSettings>(
        "{compression_algorithms: [br]}",
        "unsupported compression type \"br\"",
    );
    check::<HttpServerSettings>(
        "{response_headers: {'a b': c}}",
        "\"a b\" is not a valid header name",
    );
    check::<GrpcClientSettings>(
        "{endpoint: h}",
        "endpoint: address h: missing port in address",
    );
    check::<GrpcClientSettings>(
        "{endpoint: 'h:1', compression: lz4}",
        "unsupported compression type \"lz4\" for gRPC",
    );
    check::<GrpcClientSettings>(
        "{endpoint: 'h:1', compression: brotli}",
        "unsupported compression type \"brotli\"",
    );
    check::<GrpcClientSettings>(
        "{endpoint: 'h:1', balancer_name: random}",
        "invalid balancer_name: \"random\"",
    );
    check::<GrpcClientSettings>(
        "{endpoint: 'h:1', tls: {min_version: '1.9'}}",
        "unsupported TLS version: \"1.9\"",
    );
    check::<HttpClientSettings>(
        "{compression: snappy, compression_params: {level: 3}}",
        "unsupported parameters {Level:3} for compression type \"snappy\"",
    );
    check::<HttpClientSettings>(
        "{proxy_url: 'socks5://h:1'}",
        "is not supported; use http://host:port",
    );
    check::<HttpClientSettings>(
        "{proxy_url: 'http://:3128'}",
        "is not supported; use http://host:port",
    );
    check::<HttpClientSettings>(
        "{proxy_url: 'https://user:hunter2@h:1'}",
        "\"https://[REDACTED]@h:1\" is not supported; use http://host:port",
    );
    check::<HttpClientSettings>("{timeout: -1s}", "timeout: must be non-negative");
}
