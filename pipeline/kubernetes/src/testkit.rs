//! A scripted API server, with the answers of a real one (`testdata`) or with faulty ones.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

pub struct Server {
    pub port: u16,
    requests: Arc<Mutex<Vec<Request>>>,
    tasks: JoinSet<()>,
    /// Holds the kubeconfig.
    directory: tempfile::TempDir,
}

#[derive(Clone, Debug)]
pub struct Request {
    pub path: String,
    pub query: BTreeMap<String, String>,
    pub headers: BTreeMap<String, String>,
    pub at: Instant,
}

pub enum Answer {
    Json(u16, String),
    /// Lines of a watch that then stays open without events.
    Watch(Vec<String>),
    /// Lines of a watch that then ends.
    Ended(Vec<String>),
    Silence,
}

type Script = dyn Fn(&Request) -> Answer + Send + Sync;

impl Server {
    pub async fn start(script: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        Self::on(0, script).await
    }

    pub async fn on(
        port: u16,
        script: impl Fn(&Request) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        let script: Arc<Script> = Arc::new(script);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, Arc::clone(&script), Arc::clone(&seen)));
            }
        });
        let server = Self {
            port,
            requests,
            tasks,
            directory: tempfile::tempdir().unwrap(),
        };
        server.write_kubeconfig("first");
        server
    }

    /// The options of a component that uses this server, and `others`.
    pub fn options(&self, others: &str) -> String {
        let file = self.directory.path().join("config");
        format!(
            "{{auth_type: kubeConfig, kube_config_path: '{}', {others}}}",
            file.display()
        )
    }

    pub fn write_kubeconfig(&self, token: &str) {
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, \
              clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{}'}}}}], \
              users: [{{name: u, user: {{token: {token}}}}}], \
              contexts: [{{name: c, context: {{cluster: c, user: u}}}}]}}",
            self.port
        );
        std::fs::write(self.directory.path().join("config"), text).unwrap();
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().clone()
    }

    /// Stops the server, but keeps the credentials file.
    pub async fn stop_but_keep(mut self) -> tempfile::TempDir {
        self.tasks.shutdown().await;
        self.directory
    }
}

impl Request {
    pub fn is_watch(&self) -> bool {
        self.query.contains_key("watch")
    }

    pub fn kind(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    pub fn get(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }
}

async fn serve(stream: TcpStream, script: Arc<Script>, seen: Arc<Mutex<Vec<Request>>>) {
    let mut stream = BufReader::new(stream);
    let Some(request) = read(&mut stream).await else {
        return;
    };
    let answer = script(&request);
    seen.lock().push(request);
    // Fails if the client disconnected.
    let _ = answer.write(stream.get_mut()).await;
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let target = line.split(' ').nth(1)?.to_owned();
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let query = pairs.map(|(key, value)| (key.to_owned(), decoded(value)));
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        stream.read_line(&mut line).await.ok()?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.insert(name.to_lowercase(), value.to_owned()),
            None => break,
        };
    }
    Some(Request {
        path: path.to_owned(),
        query: query.collect(),
        headers,
        at: Instant::now(),
    })
}

fn decoded(text: &str) -> String {
    text.replace("%3D", "=")
        .replace("%21", "!")
        .replace("%2F", "/")
}

impl Answer {
    async fn write(self, stream: &mut TcpStream) -> std::io::Result<()> {
        let (status, body, is_whole) = match self {
            Self::Json(status, body) => (status, body, true),
            Self::Ended(lines) => (200, text(&lines), true),
            Self::Watch(lines) => (200, text(&lines), false),
            Self::Silence => return std::future::pending().await,
        };
        let length = match is_whole {
            true => format!("content-length: {}\r\n", body.len()),
            false => String::new(),
        };
        let head = format!(
            "HTTP/1.1 {status} said\r\ncontent-type: application/json\r\n{length}connection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        stream.flush().await?;
        match is_whole {
            true => Ok(()),
            false => std::future::pending().await,
        }
    }
}

fn text(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}
