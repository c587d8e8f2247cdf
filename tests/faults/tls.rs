//! Mutual TLS, wrong authorities, and certificates that are renewed while the program runs.

use std::fs;
use std::path::{Path, PathBuf};

use profcol_component::testkit::profiles;
use profcol_net::tls::ClientTls;
use profcol_net::{Compression, GrpcClientSettings, HttpClientSettings, Message};

use crate::Rig;
use crate::backend::{Client, Destination, HttpSender, Mode, wait_until};

/// Signs certificates, which it keeps in a folder of its own.
struct Authority {
    folder: tempfile::TempDir,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = rcgen::CertificateParams::new(vec![]).expect("no names are valid names");
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().expect("a key can be made");
        let own = params.self_signed(&key).expect("it can be signed");
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::write(folder.path().join("ca.pem"), own.pem()).expect("a temporary file");
        Self {
            folder,
            issuer: rcgen::Issuer::new(params, key),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a certificate for `localhost` and its key to `to`, over what is there.
    fn issue(&self, to: &Pair) {
        let names = vec!["localhost".to_owned()];
        let params = rcgen::CertificateParams::new(names).expect("a host name");
        let key = rcgen::KeyPair::generate().expect("a key can be made");
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

/// At once, as tools that renew certificates do.
fn put(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).expect("a temporary file");
    fs::rename(&new, path).expect("it is in the same folder");
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

/// Whether a batch is taken over gRPC and HTTP; if it is not, why.
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

/// Refused each time, and told why, unless the connection is gone before the reason was read.
fn assert_refused(rig: &Rig, tls: &ClientTls, words: &str) {
    let mut told = [false; 2];
    wait_until(words, || {
        for (told, refused) in told.iter_mut().zip(send(rig, tls)) {
            *told |= refused.unwrap_err().contains(words);
        }
        told == [true; 2]
    });
}

/// A profcol whose listeners have these keys under `tls`, in front of `destination`.
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
fn only_clients_of_the_authority_are_let_in() {
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
    let said = rig.stop();
    assert!(said.contains("TLS handshake failed"), "{said}");
    assert_eq!(destination.samples(), 4);
}

#[test]
fn renewed_certificates_are_shown_without_a_restart() {
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
    wait_until("the new certificate to be shown", || taken(&new));
    assert_refused(&rig, &trusting(&old, None), "`tls::ca_file`");
    // Who is connected stays so.
    before.send(&profiles(20)).unwrap();
    drop(before);

    // A file that cannot be used changes nothing but the log.
    put(&server.certificate, "no certificate");
    let mut rig = rig;
    for _ in 0..3 {
        std::thread::sleep(std::time::Duration::from_millis(60));
        assert_taken(&rig, &trusting(&new, None));
    }
    rig.process.wait_for_output("to tell", |said| {
        let line = said
            .lines()
            .find(|line| line.contains("keeping the previous"));
        line.is_some_and(|line| line.contains("server.pem"))
    });
    rig.stop();
    assert!(destination.samples() >= 38);
}

#[test]
fn an_exporter_says_what_is_wrong_with_its_certificates_and_takes_up_renewed_ones() {
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
    // At first nothing fits: the authority is not the server's, the certificate none that it takes.
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
        rig.process.wait_for_output("to say what to set", |said| {
            let mut lines = said.lines();
            lines.any(|line| line.contains(name) && line.contains("set `tls::ca_file`"))
        });
    }
    put(&trusted, &fs::read_to_string(&ca).unwrap());
    for name in ["otlp_grpc", "otlp_http"] {
        rig.process.wait_for_output("to be told why", |said| {
            let mut lines = said.lines();
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
