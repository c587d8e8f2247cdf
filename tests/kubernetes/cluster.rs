//! A Kubernetes API server with its etcd, on loopback, in a temporary directory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use profcol_test_harness::TIMEOUT;
use profcol_test_harness::peers::free_address;
use serde_json::Value;

/// Set by `cargo xtask kubernetes-test`: the program of the API server.
const SERVER: &str = "PROFCOL_KUBE_APISERVER";

/// The context of the service account of `deploy/kubernetes`.
pub const ACCOUNT: &str = "profcol";

pub struct Cluster {
    program: PathBuf,
    directory: tempfile::TempDir,
    etcd: Child,
    server: Child,
    etcd_port: u16,
    port: u16,
}

impl Cluster {
    pub fn start() -> Self {
        let program = std::env::var_os(SERVER).map(PathBuf::from);
        let program = program.expect("`cargo xtask kubernetes-test` sets PROFCOL_KUBE_APISERVER");
        let directory = tempfile::tempdir().unwrap();
        write_credentials(directory.path());
        let (etcd_port, peer_port) = (free_address().port(), free_address().port());
        let local = |port: u16| format!("http://127.0.0.1:{port}");
        let etcd = Command::new("etcd")
            .arg("--data-dir")
            .arg(directory.path().join("etcd"))
            .args(["--listen-client-urls", &local(etcd_port)])
            .args(["--advertise-client-urls", &local(etcd_port)])
            .args(["--listen-peer-urls", &local(peer_port)])
            .args(["--initial-advertise-peer-urls", &local(peer_port)])
            .args([
                "--initial-cluster",
                &format!("default={}", local(peer_port)),
            ])
            .args(["--unsafe-no-fsync", "--quota-backend-bytes", "8000000000"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd is installed (Debian: etcd-server)");
        let port = free_address().port();
        let server = serve(&program, directory.path(), etcd_port, port);
        let cluster = Self {
            program,
            directory,
            etcd,
            server,
            etcd_port,
            port,
        };
        cluster.write_kubeconfig();
        cluster.wait();
        cluster
    }

    /// Stops the API server, and starts it again after `meanwhile`.
    pub fn restarted(mut self, meanwhile: impl FnOnce()) -> Self {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
        meanwhile();
        self.server = serve(
            &self.program,
            self.directory.path(),
            self.etcd_port,
            self.port,
        );
        self.wait();
        self
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    pub fn create(&self, path: &str, object: &Value) -> Value {
        self.ask("POST", path, "application/json", object)
    }

    /// What the server says about an object that it does not admit.
    pub fn refuses(&self, path: &str, object: &Value) -> String {
        let body = self.body(object);
        let (is_accepted, answer) = self.exchange("POST", path, "application/json", &body, "admin");
        assert!(!is_accepted, "POST {path}: {answer}");
        answer
    }

    pub fn patch(&self, path: &str, change: &Value) {
        self.ask(
            "PATCH",
            path,
            "application/strategic-merge-patch+json",
            change,
        );
    }

    pub fn delete(&self, path: &str) {
        let now = serde_json::json!({"gracePeriodSeconds": 0});
        self.ask("DELETE", path, "application/json", &now);
    }

    /// Applies each document of a file like `kubectl apply --server-side`.
    pub fn apply(&self, file: &Path) {
        let text = fs::read_to_string(file).unwrap();
        for document in text.split("\n---\n") {
            let field = |name: &str| {
                let line = document.lines().find_map(|line| line.strip_prefix(name));
                line.unwrap_or_default().trim().to_owned()
            };
            let (kind, version) = (field("kind:"), field("apiVersion:"));
            let (name, namespace) = (field("  name:"), field("  namespace:"));
            let root = match version.contains('/') {
                true => format!("/apis/{version}"),
                false => format!("/api/{version}"),
            };
            let place = match &*namespace {
                "" => String::new(),
                namespace => format!("/namespaces/{namespace}"),
            };
            let plural = format!("{}s", kind.to_lowercase());
            let path =
                format!("{root}{place}/{plural}/{name}?fieldManager=test&fieldValidation=Strict");
            let body = self.directory.path().join("body");
            fs::write(&body, document).unwrap();
            self.send(
                "PATCH",
                &path,
                "application/apply-patch+yaml",
                &body,
                "admin",
            );
        }
    }

    /// The server's raw response to `path`, whatever its status.
    pub fn raw(&self, token: &str, path: &str, accept: &str) -> String {
        let output = self
            .curl(token)
            .args(["--max-time", "20", "--header", &format!("accept: {accept}")])
            .arg(self.url(path))
            .output()
            .expect("curl is installed");
        String::from_utf8(output.stdout).unwrap()
    }

    fn ask(&self, method: &str, path: &str, kind: &str, object: &Value) -> Value {
        let body = self.body(object);
        let answer = self.send(method, path, kind, &body, "admin");
        serde_json::from_str(&answer).unwrap()
    }

    /// A file with the object, until the next one.
    fn body(&self, object: &Value) -> PathBuf {
        let body = self.directory.path().join("body");
        fs::write(&body, object.to_string()).unwrap();
        body
    }

    fn send(&self, method: &str, path: &str, kind: &str, body: &Path, token: &str) -> String {
        let (is_accepted, answer) = self.exchange(method, path, kind, body, token);
        assert!(is_accepted, "{method} {path}: {answer}");
        answer
    }

    /// Whether the server accepted the request, and its response.
    fn exchange(
        &self,
        method: &str,
        path: &str,
        kind: &str,
        body: &Path,
        token: &str,
    ) -> (bool, String) {
        let output = self
            .curl(token)
            .args(["--fail-with-body", "--request", method])
            .args([
                "--header",
                &format!("content-type: {kind}"),
                "--data-binary",
            ])
            .arg(format!("@{}", body.display()))
            .arg(self.url(path))
            .output()
            .expect("curl is installed");
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), stdout)
    }

    fn curl(&self, token: &str) -> Command {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--insecure", "--header"])
            .arg(format!("authorization: Bearer {token}-token"));
        curl
    }

    fn url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.port)
    }

    fn wait(&self) {
        let end = Instant::now() + TIMEOUT;
        while self.raw("admin", "/readyz", "*/*") != "ok" {
            let log = fs::read_to_string(self.directory.path().join("server.log"));
            assert!(Instant::now() < end, "{}", log.unwrap_or_default());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn write_kubeconfig(&self) {
        let text = format!(
            "apiVersion: v1
kind: Config
current-context: admin
clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:{}', certificate-authority: '{}'}}}}]
users: [{{name: admin, user: {{token: admin-token}}}}, {{name: profcol, user: {{token: profcol-token}}}}]
contexts: [{{name: admin, context: {{cluster: c, user: admin}}}}, {{name: profcol, context: {{cluster: c, user: profcol}}}}]
",
            self.port,
            self.directory.path().join("certificates/apiserver.crt").display(),
        );
        fs::write(self.kubeconfig(), text).unwrap();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in [&mut self.server, &mut self.etcd] {
            // Both fail only if it has already exited.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn write_credentials(directory: &Path) {
    let key = Command::new("openssl")
        .args(["genrsa", "-out"])
        .arg(directory.join("key"))
        .arg("2048")
        .output()
        .expect("openssl is installed");
    assert!(key.status.success());
    let groups = "system:serviceaccounts,system:serviceaccounts:profcol,system:authenticated";
    let tokens = format!(
        "admin-token,admin,admin,\"system:masters\"\nprofcol-token,system:serviceaccount:profcol:profcol,profcol,\"{groups}\"\n"
    );
    fs::write(directory.join("tokens.csv"), tokens).unwrap();
}

fn serve(program: &Path, directory: &Path, etcd_port: u16, port: u16) -> Child {
    let file = |name: &str| directory.join(name).display().to_string();
    let log = File::create(directory.join("server.log")).unwrap();
    Command::new(program)
        .arg(format!("--etcd-servers=http://127.0.0.1:{etcd_port}"))
        .arg("--service-account-issuer=https://kubernetes.default.svc")
        .arg(format!("--service-account-key-file={}", file("key")))
        .arg(format!(
            "--service-account-signing-key-file={}",
            file("key")
        ))
        .arg(format!("--token-auth-file={}", file("tokens.csv")))
        .arg(format!("--cert-dir={}", file("certificates")))
        .arg(format!("--secure-port={port}"))
        .args([
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            "--bind-address=127.0.0.1",
            "--disable-admission-plugins=ServiceAccount",
            "--max-requests-inflight=2000",
            "--max-mutating-requests-inflight=1000",
        ])
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("the API server can be started")
}
