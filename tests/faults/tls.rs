//! Mutual TLS, wrong CAs, and certificates that are renewed at run time.

use std::fs;
use std::path::{Path, PathBuf};

use profcol_component::testkit::profiles;
use profcol_net::tls::ClientTls;
use profcol_net::{Compression, GrpcClientSettings, HttpClientSettings, Message};
use profcol_test_harness::backend::{Client, Destination, HttpSender, Mode, wait_until};

use crate::Rig;

/// A CA with a directory for its certificates.
struct Authority {
    directory: tempfile::TempDir,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = rcgen::CertificateParams::new(vec![]).expect("no names are valid names");
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().expect("can generate a key");
        let own = params.self_signed(&key).expect("can sign the certificate");
        let directory = tempfile::tempdir().expect("can create a temporary directory");
        fs::write(directory.path().join("ca.pem"), own.pem()).expect("can create a temporary file");
        Self {
            directory,
            issuer: rcgen::Issuer::new(params, key),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a certificate for `localhost` and its key to `to`, overwriting existing files.
    fn issue(&self, to: &Pair) {
        let names = vec!["localhost".to_owned()];
        let params = rcgen::CertificateParams::new(names).expect("a host name");
        let key = rcgen::KeyPair::generate().expect("can generate a key");
        let signed = params.signed_by(&key, &self.issuer).expect("it can be");
        put(&to.certificate, &signed.pem());
        put(&to.key, &key.serialize_pem());
    }

    fn issued(&self, name: &str) -> Pair {
        let pair = Pair {
            certificate: self.path(&format!("{name}.pem")),
            key: self.path(&format!("{name}.key")),
        };
        self.issue(&pair);
        pair
    }
}

/// Writes atomically, like renewal tools.
fn put(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).expect("can create a temporary file");
    fs::rename(&new, path).expect("it is in the same directory");
}

struct Pair {
    certificate: PathBuf,
    key: PathBuf,
}

impl Pair {
    fn yaml(&self) -> String {
        let (certificate, key) = (self.certificate.display(), self.key.display());
        format!("cert_file: {certificate}, key_file: {key}")
    }
}

fn trusting(authority: &Authority, show: Option<&Pair>) -> ClientTls {
    let text = |path: &Path| path.display().to_string();
    ClientTls {
        ca_file: text(&authority.path("ca.pem")),
        cert_file: show.map(|pair| text(&pair.certificate)).unwrap_or_default(),
        key_file: show.map(|pair| text(&pair.key)).unwrap_or_default(),
        ..ClientTls::default()
    }
}

/// Sends a batch over gRPC and HTTP, and returns the results.
fn send(rig: &Rig, tls: &ClientTls) -> [Result<(), String>; 2] {
    let batch = profiles(1);
    let grpc = Client::with(&GrpcClientSettings {
        endpoint: format!("localhost:{}", rig.grpc.port()),
        tls: tls.clone(),
        compression: Compression::None,
        ..GrpcClientSettings::default()
    });
    let settings = HttpClientSettings {
        tls: tls.clone(),
        compression: Compression::None,
        ..HttpClientSettings::default()
    };
    let base = format!("https://localhost:{}", rig.http.port());
    let http = HttpSender::with(&settings, &base);
    let reply = http.try_post("application/x-protobuf", &Message::from(batch.to_wire()));
    [
        grpc.send(&batch).map_err(|status| status.to_string()),
        reply.map(drop).map_err(|error| error.to_string()),
    ]
}

fn assert_taken(rig: &Rig, tls: &ClientTls) {
    assert_eq!(send(rig, tls), [Ok(()), Ok(())], "{}", rig.process.output());
}

/// Checks that each is refused with a reason, unless the connection closes before the client reads it.
fn assert_refused(rig: &Rig, tls: &ClientTls, words: &str) {
    let mut is_refused = [false; 2];
    wait_until(words, || {
        for (is_refused, refused) in is_refused.iter_mut().zip(send(rig, tls)) {
            *is_refused |= refused.unwrap_err().contains(words);
        }
        is_refused == [true; 2]
    });
}

/// A profcol whose listeners have these `tls` settings, and that exports to `destination`.
fn front(tls: &str, destination: &Destination) -> Rig {
    let address = destination.address;
    Rig::started(crate::profcol(&format!(
        "\
receivers:
  otlp:
    protocols:
      grpc: {{endpoint: 127.0.0.1:0, tls: {{{tls}}}}}
      http: {{endpoint: 127.0.0.1:0, tls: {{{tls}}}}}
exporters:
  otlp_grpc: {{endpoint: {address}, tls: {{insecure: true}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    profiles: {{receivers: [otlp], exporters: [otlp_grpc]}}
"
    )))
}

#[test]
fn accepts_only_clients_of_the_ca() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let (server, us, them) = (
        ours.issued("server"),
        ours.issued("client"),
        theirs.issued("client"),
    );
    let ca = ours.path("ca.pem");
    let tls = format!("{}, client_ca_file: {}", server.yaml(), ca.display());
    let destination = Destination::new(Mode::Take);
    let rig = front(&tls, &destination);

    assert_taken(&rig, &trusting(&ours, Some(&us)));
    assert_refused(&rig, &trusting(&ours, None), "`tls::cert_file`");
    assert_refused(&rig, &trusting(&ours, Some(&them)), "`tls::cert_file`");
    assert_refused(&rig, &trusting(&theirs, Some(&us)), "`tls::ca_file`");
    assert_taken(&rig, &trusting(&ours, Some(&us)));
    let output = rig.stop();
    assert!(output.contains("TLS handshake failed"), "{output}");
    assert_eq!(destination.samples(), 4);
}

#[test]
fn serves_renewed_certificates_without_a_restart() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let server = old.issued("server");
    let destination = Destination::new(Mode::Take);
    let tls = format!("{}, reload_interval: 50ms", server.yaml());
    let rig = front(&tls, &destination);

    assert_taken(&rig, &trusting(&old, None));
    let before = Client::with(&GrpcClientSettings {
        endpoint: format!("localhost:{}", rig.grpc.port()),
        tls: trusting(&old, None),
        ..GrpcClientSettings::default()
    });
    before.send(&profiles(10)).unwrap();
    new.issue(&server);
    let taken = |authority| send(&rig, &trusting(authority, None)) == [Ok(()), Ok(())];
    wait_until("the new certificate to be served", || taken(&new));
    assert_refused(&rig, &trusting(&old, None), "`tls::ca_file`");
    // Existing connections stay open.
    before.send(&profiles(20)).unwrap();
    drop(before);

    // An invalid file only causes a log line.
    put(&server.certificate, "no certificate");
    let is_told = || {
        assert_taken(&rig, &trusting(&new, None));
        let output = rig.process.output();
        let mut lines = output.lines();
        let line = lines.find(|line| line.contains("keeping the previous"));
        line.is_some_and(|line| line.contains("server.pem"))
    };
    wait_until("the file to be named", is_told);
    assert_taken(&rig, &trusting(&new, None));
    rig.stop();
    assert!(destination.samples() >= 38);
}

#[test]
fn an_exporter_reports_certificate_errors_and_reloads_renewed_files() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let (server, client) = (ours.issued("server"), theirs.issued("client"));
    let destination = Destination::new(Mode::Take);
    let ca = ours.path("ca.pem");
    let back = front(
        &format!("{}, client_ca_file: {}", server.yaml(), ca.display()),
        &destination,
    );
    let retry =
        "retry_on_failure: {initial_interval: 20ms, max_interval: 100ms, max_elapsed_time: 0s}";
    // At first both are wrong: the CA is not the server's, and the server does not accept the certificate.
    let trusted = theirs.path("trusted.pem");
    put(
        &trusted,
        &fs::read_to_string(theirs.path("ca.pem")).unwrap(),
    );
    let tls = format!(
        "ca_file: {}, {}, reload_interval: 50ms",
        trusted.display(),
        client.yaml()
    );
    let (grpc, http) = (back.grpc.port(), back.http.port());
    let exporters = format!(
        "  otlp_grpc: {{endpoint: \"localhost:{grpc}\", tls: {{{tls}}}, {retry}}}
  otlp_http: {{endpoint: \"https://localhost:{http}\", tls: {{{tls}}}, {retry}}}
"
    );
    let mut rig = Rig::new(&exporters, "otlp_grpc, otlp_http");
    Client::new(rig.grpc).send(&profiles(5)).unwrap();
    for name in ["otlp_grpc", "otlp_http"] {
        rig.process.wait_for_output("to log the fix", |output| {
            let mut lines = output.lines();
            lines.any(|line| line.contains(name) && line.contains("set `tls::ca_file`"))
        });
    }
    put(&trusted, &fs::read_to_string(&ca).unwrap());
    for name in ["otlp_grpc", "otlp_http"] {
        rig.process.wait_for_output("to log the reason", |output| {
            let mut lines = output.lines();
            lines.any(|line| line.contains(name) && line.contains("check `tls::cert_file`"))
        });
    }
    assert_eq!(destination.samples(), 0);
    ours.issue(&client);
    destination.wait_for_samples(10);
    rig.stop();
    back.stop();
    assert_eq!(destination.samples(), 10);
}
