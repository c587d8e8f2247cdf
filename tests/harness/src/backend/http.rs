//! An OTLP/HTTP destination with handwritten HTTP/1.1, so that it can disconnect anywhere.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use profcol_profile::{Profiles, Validation};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::wait_until;

/// How an HTTP destination behaves.
#[derive(Clone, Debug)]
pub enum HttpMode {
    Take,
    /// Accepts after this time.
    Slow(Duration),
    /// Never responds.
    Hang,
    /// Responds with this status line and headers, and accepts nothing.
    Refuse(&'static str),
    /// Responds with these bytes, and accepts nothing.
    Say(&'static str),
    /// Responds with these bytes, one every 100 ms, and accepts nothing.
    Trickle(&'static str),
    /// Accepts nothing and disconnects in the middle of the response body.
    CutAnswer,
    /// Disconnects in the middle of the request.
    CutRequest,
    /// Responds with 413 to larger requests.
    AtMost(usize),
}

/// Records accepted data.
pub struct HttpDestination {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    /// Serves until it is dropped, which cuts all connections.
    runtime: Option<Runtime>,
}

struct State {
    mode: HttpMode,
    taken: Vec<Profiles>,
    /// The request line of each request.
    requests: Vec<String>,
}

impl HttpDestination {
    pub fn new(mode: HttpMode) -> Self {
        Self::on("127.0.0.1:0".parse().expect("an address"), mode)
    }

    pub fn on(address: SocketAddr, mode: HttpMode) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("threads can be started");
        let listener = runtime
            .block_on(TcpListener::bind(address))
            .expect("the port is free");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::new(Mutex::new(State {
            mode,
            taken: Vec::new(),
            requests: Vec::new(),
        }));
        let serving = state.clone();
        runtime.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((connection, _)) = listener.accept().await {
                connections.spawn(serve(connection, serving.clone()));
            }
        });
        Self {
            address,
            state,
            runtime: Some(runtime),
        }
    }

    pub fn set(&self, mode: HttpMode) {
        self.state.lock().unwrap().mode = mode;
    }

    /// The number of accepted samples.
    pub fn samples(&self) -> usize {
        let state = self.state.lock().unwrap();
        state.taken.iter().map(Profiles::sample_count).sum()
    }

    /// The request lines of all requests, accepted or not.
    pub fn requests(&self) -> Vec<String> {
        self.state.lock().unwrap().requests.clone()
    }

    pub fn wait_for_samples(&self, samples: usize) {
        wait_until(&format!("{samples} samples to arrive"), || {
            self.samples() >= samples
        });
    }

    pub fn wait_for_requests(&self, times: usize) {
        wait_until("the destination to be called", || {
            self.requests().len() >= times
        });
    }
}

impl Drop for HttpDestination {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Responds to each request; `None` when the connection ends.
async fn serve(connection: TcpStream, state: Arc<Mutex<State>>) -> Option<()> {
    let mut connection = BufReader::new(connection);
    loop {
        let head = read_head(&mut connection).await?;
        let mode = {
            let mut state = state.lock().unwrap();
            let line = head.lines().next().unwrap_or_default();
            state.requests.push(line.to_owned());
            state.mode.clone()
        };
        if let HttpMode::CutRequest = mode {
            return None;
        }
        let mut body = vec![0; content_length(&head)?];
        connection.read_exact(&mut body).await.ok()?;
        let answer = match mode {
            HttpMode::Hang => std::future::pending().await,
            HttpMode::Refuse(status) => format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n"),
            HttpMode::Say(answer) => answer.to_owned(),
            HttpMode::Trickle(answer) => {
                for byte in answer.bytes() {
                    connection.write_all(&[byte]).await.ok()?;
                    // So slowly that no timeout allows for the whole.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                std::future::pending().await
            }
            HttpMode::AtMost(limit) if body.len() > limit => {
                "HTTP/1.1 413 Payload Too Large\r\ncontent-length: 0\r\n\r\n".to_owned()
            }
            HttpMode::CutAnswer => "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nbegun".to_owned(),
            HttpMode::Take | HttpMode::Slow(_) | HttpMode::AtMost(_) | HttpMode::CutRequest => {
                if let HttpMode::Slow(delay) = mode {
                    tokio::time::sleep(delay).await;
                }
                let received = Profiles::from_wire(body.into(), Validation::Reject);
                let profiles = received.expect("sent messages are valid").profiles;
                state.lock().unwrap().taken.push(profiles);
                "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned()
            }
        };
        connection.write_all(answer.as_bytes()).await.ok()?;
        if let HttpMode::CutAnswer = mode {
            return None;
        }
    }
}

async fn read_head(connection: &mut BufReader<TcpStream>) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(connection.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

fn content_length(head: &str) -> Option<usize> {
    let head = head.to_lowercase();
    let line = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"));
    line?.trim().parse().ok()
}
