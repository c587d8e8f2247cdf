//! TLS between our clients and servers, and its error messages.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a panic fails the test and ends its tasks"
)]

mod support;

use std::error::Error;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderValue, Method};
use profcol_config::Present;
use profcol_net::grpc::{Code, Status};
use profcol_net::tls::{ClientTls, ServerTls, TlsVersion};
use profcol_net::{
    ClientError, GrpcClient, GrpcClientSettings, GrpcServer, GrpcServerSettings, Hint, HttpCall,
    HttpClient, HttpClientSettings, HttpError, HttpReply, ListeningSockets,
};

use support::*;

const ECHO: &str = "/test.Behaviour/Echo";

fn server_tls(pair: (String, String)) -> ServerTls {
    ServerTls {
        cert_file: pair.0,
        key_file: pair.1,
        ..ServerTls::default()
    }
}

fn server(tls: ServerTls) -> Running {
    grpc_server(&GrpcServerSettings {
        tls: Present(Some(tls)),
        ..grpc_settings()
    })
}

fn trusting(authority: &Authority) -> ClientTls {
    ClientTls {
        ca_file: authority.ca(),
        ..ClientTls::default()
    }
}

fn client(server: &Running, tls: ClientTls) -> GrpcClientSettings {
    let endpoint = server.endpoint().replace("127.0.0.1", "localhost");
    GrpcClientSettings {
        endpoint,
        tls,
        ..GrpcClientSettings::default()
    }
}

async fn outcome(settings: &GrpcClientSettings) -> Result<(), Status> {
    let client = grpc_client(settings);
    call(&client, ECHO, &message("x")).await.map(drop)
}

#[tokio::test]
async fn errors_for_untrusted_servers_say_what_to_check() {
    let authority = Authority::new();
    let good = server(server_tls(authority.issue("good", "localhost")));
    let other_name = server(server_tls(authority.issue("name", "elsewhere.test")));
    let expired = server(server_tls(authority.issue_until("old", "localhost", 2020)));
    let self_signed = server(server_tls(authority.self_signed("self", "localhost")));
    let plain = grpc_server(&grpc_settings());
    let trust = trusting(&authority);
    let unknown = Authority::new();
    let stranger = trusting(&unknown);
    let believe = ClientTls {
        insecure_skip_verify: true,
        ..ClientTls::default()
    };
    let renamed = ClientTls {
        server_name_override: "elsewhere.test".to_owned(),
        ..trust.clone()
    };
    let insecure = ClientTls {
        insecure: true,
        ..ClientTls::default()
    };
    let modern = ClientTls {
        min_version: TlsVersion::V1_3,
        ..trust.clone()
    };
    let old = ClientTls {
        max_version: TlsVersion::V1_2,
        ..trust.clone()
    };
    for (server, tls) in [
        (&good, &trust),
        (&good, &modern),
        (&good, &old),
        (&good, &believe),
        (&other_name, &renamed),
        (&expired, &believe),
    ] {
        let outcome = outcome(&client(server, tls.clone())).await;
        assert_eq!(outcome, Ok(()), "{tls:?}");
    }
    for (server, tls, expected) in [
        (&good, &stranger, Hint::SetCaFile),
        (&other_name, &trust, Hint::OverrideServerName),
        (&expired, &trust, Hint::RenewCertificate),
        (&self_signed, &trust, Hint::IssueCertificate),
        (&plain, &trust, Hint::DisableTls),
        (&good, &insecure, Hint::CheckGrpcAndTls),
    ] {
        let status = outcome(&client(server, tls.clone())).await.unwrap_err();
        assert_eq!(status.code, Code::Unavailable, "{status}");
        assert_eq!(status.hint, Some(expected), "{status}");
        assert!(status.to_string().ends_with(&format!("; {expected}")));
        assert!(status.source().is_some(), "{status}");
    }
    assert!(good.stats.handshake_failures.load(Relaxed) >= 2);
}

#[tokio::test]
async fn mutual_tls_accepts_only_clients_of_the_ca() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let mut tls = server_tls(ours.issue("server", "localhost"));
    tls.client_ca_file = ours.ca();
    let server = server(tls);
    let with = |(cert_file, key_file): (String, String)| ClientTls {
        cert_file,
        key_file,
        ..trusting(&ours)
    };
    assert_eq!(
        outcome(&client(&server, with(ours.issue("us", "client")))).await,
        Ok(())
    );
    let stranger = with(theirs.issue("them", "client"));
    let url = format!("https://localhost:{}/p", server.tcp().port());
    for (tls, expected) in [
        (stranger, Hint::CheckClientCertificate),
        (trusting(&ours), Hint::SetClientCertificate),
    ] {
        let status = outcome(&client(&server, tls.clone())).await.unwrap_err();
        assert_eq!(status.hint, Some(expected), "{status}");
        let error = post(&url, tls, true).await.unwrap_err();
        assert_eq!(error.hint(), Some(expected), "{error}");
        assert!(error.to_string().ends_with(&format!("; {expected}")));
    }
}

#[tokio::test]
async fn https_supports_http1_and_http2() {
    let authority = Authority::new();
    let mut settings = http_settings();
    settings.tls = Present(Some(server_tls(authority.issue("web", "localhost"))));
    let server = http_server(&settings);
    let url = format!("https://localhost:{}/p", server.tcp().port());
    for force_attempt_http2 in [true, false] {
        let reply = post(&url, trusting(&authority), force_attempt_http2).await;
        assert_eq!(reply.unwrap().body, "POST /p gzip 5 test/1");
    }
}

async fn post(
    url: &str,
    tls: ClientTls,
    force_attempt_http2: bool,
) -> Result<HttpReply, HttpError> {
    let settings = HttpClientSettings {
        tls,
        force_attempt_http2,
        ..HttpClientSettings::default()
    };
    let client = HttpClient::new(&settings, url, None, "test/1").unwrap();
    let call = HttpCall {
        method: Method::POST,
        content_type: HeaderValue::from_static("text/plain"),
        body: &message("hello"),
        headers: HeaderMap::new(),
        timeout: None,
    };
    client.send(call).await
}

#[tokio::test]
async fn reloads_renewed_files_and_ignores_broken_ones() {
    let (first, second) = (Authority::new(), Authority::new());
    let (cert, key) = first.issue("server", "localhost");
    let mut tls = server_tls((cert.clone(), key.clone()));
    let interval = Duration::from_millis(1);
    tls.reload_interval = profcol_config::Duration::from_millis(1);
    let server = server(tls);
    let with = |authority| client(&server, trusting(authority));
    assert_eq!(outcome(&with(&first)).await, Ok(()));

    std::fs::write(&cert, "not a certificate").unwrap();
    // Each handshake is a check, after the interval.
    let broken = Instant::now();
    while broken.elapsed() < 10 * interval {
        assert_eq!(outcome(&with(&first)).await, Ok(()));
    }

    let renewed = second.issue("server", "localhost");
    std::fs::copy(renewed.0, &cert).unwrap();
    std::fs::copy(renewed.1, &key).unwrap();
    wait_until("the renewed certificate", async || {
        outcome(&with(&second)).await.is_ok()
    })
    .await;
    assert!(outcome(&with(&first)).await.is_err());
}

#[tokio::test]
async fn errors_name_unusable_files_and_the_fix() {
    let authority = Authority::new();
    let (cert, key) = authority.issue("a", "localhost");
    let (_, other_key) = authority.issue("b", "localhost");
    let empty = authority
        .dir
        .path()
        .join("empty.pem")
        .to_str()
        .unwrap()
        .to_owned();
    std::fs::write(&empty, "").unwrap();
    let locked = authority
        .dir
        .path()
        .join("locked.key")
        .to_str()
        .unwrap()
        .to_owned();
    std::fs::write(
        &locked,
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    )
    .unwrap();
    for (cert, key, expected) in [
        ("/nonexistent/c.pem", key.as_str(), "tls: failed to read certificate `/nonexistent/c.pem`: No such file or directory (os error 2); check `cert_file` and that this process may read it".to_owned()),
        (&cert, "/nonexistent/k", "tls: failed to read private key `/nonexistent/k`: No such file or directory (os error 2); check `key_file` and that this process may read it".to_owned()),
        (&empty, &key, format!("tls: `{empty}` contains no PEM-encoded certificate")),
        (&cert, &empty, format!("tls: `{empty}` contains no PEM-encoded private key")),
        (&cert, &locked, format!("tls: `{locked}` contains no PEM-encoded private key; it is encrypted, which is not supported: decrypt it with `openssl pkey`")),
        (&cert, &other_key, format!("tls: the certificate in `{cert}` does not match the key in `{other_key}`")),
        ("", &key, "tls: TLS configuration must include both certificate and key: set `cert_file` or `cert_pem` too".to_owned()),
        ("", "", "tls: TLS configuration must include both certificate and key for server connections".to_owned()),
    ] {
        let tls = server_tls((cert.to_owned(), key.to_owned()));
        let settings = GrpcServerSettings { tls: Present(Some(tls)), ..grpc_settings() };
        assert_eq!(GrpcServer::bind(&settings, None, &ListeningSockets::default()).unwrap_err().to_string(), expected);
    }
}

#[test]
fn rejects_invalid_settings() {
    let pem = ClientTls {
        ca_file: "a".to_owned(),
        ca_pem: "b".into(),
        ..ClientTls::default()
    };
    let suite = ClientTls {
        cipher_suites: vec!["TLS_RSA_WITH_RC4_128_SHA".to_owned()],
        ..ClientTls::default()
    };
    let curve = ClientTls {
        curve_preferences: vec!["P521".to_owned()],
        ..ClientTls::default()
    };
    let versions = ClientTls {
        min_version: TlsVersion::V1_3,
        max_version: TlsVersion::V1_2,
        ..ClientTls::default()
    };
    for (tls, expected) in [
        (pem, "`ca_file` and `ca_pem` are both set; keep one of them"),
        (
            suite,
            "invalid TLS cipher suite: \"TLS_RSA_WITH_RC4_128_SHA\"",
        ),
        (
            curve,
            "invalid curve type: P521. Expected values are X25519, P256, P384",
        ),
        (
            versions,
            "invalid TLS configuration: min_version cannot be greater than max_version",
        ),
    ] {
        let settings = GrpcClientSettings {
            endpoint: "h:1".to_owned(),
            tls,
            ..GrpcClientSettings::default()
        };
        let error = GrpcClient::new(&settings, None, "test/1").unwrap_err();
        assert!(matches!(error, ClientError::Tls(_)));
        assert_eq!(error.to_string(), format!("tls: {expected}"));
    }
}

#[test]
fn accepts_gos_names_of_suites_and_curves() {
    let tls = ClientTls {
        insecure_skip_verify: true,
        cipher_suites: vec![
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".to_owned(),
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256".to_owned(),
            "TLS_AES_256_GCM_SHA384".to_owned(),
        ],
        curve_preferences: vec!["X25519".to_owned(), "P256".to_owned(), "P384".to_owned()],
        ..ClientTls::default()
    };
    let settings = GrpcClientSettings {
        endpoint: "h:1".to_owned(),
        tls,
        ..GrpcClientSettings::default()
    };
    GrpcClient::new(&settings, None, "test/1").unwrap();
}
