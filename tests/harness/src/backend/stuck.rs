//! A gRPC server that answers calls byte by byte or hardly lets a request through, until it is told to behave.

use std::io::{Read, Result, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::wait_until;
use crate::http2::frame;

/// Between two bytes. A whole answer takes longer than the timeouts of tests.
const INTERVAL: Duration = Duration::from_millis(100);

const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();

// Types, flags and settings of RFC 9113.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const MAX_CONCURRENT_STREAMS: u8 = 3;
const INITIAL_WINDOW_SIZE: u8 = 4;

/// `:status: 200` and `content-type: application/grpc`.
const RESPONSE: &[u8] = b"\x88\x5f\x10application/grpc";
/// An empty message.
const MESSAGE: &[u8] = &[0; 5];
/// `grpc-status: 0`.
const TRAILERS: &[u8] = b"\x40\x0bgrpc-status\x010";

/// What it does byte by byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// Responds.
    Headers,
    /// Sends the message, in frames of a byte, after the headers.
    Body,
    /// Ends the call, after the message.
    Trailers,
    /// Opens the window for the request.
    Window,
    /// Begins the first frame of the connection, which would allow for a call.
    Settings,
    /// Nothing: no call may begin.
    Streams,
}

/// Connections go on as they began. Those that begin after [`behave`](Self::behave) lead to the server behind it.
pub struct StuckServer {
    pub address: SocketAddr,
    state: Arc<State>,
}

struct State {
    how: Stuck,
    behind: SocketAddr,
    behaves: AtomicBool,
    connections: AtomicUsize,
}

/// Of one connection: frames of several answers do not mix.
struct Writer(Mutex<TcpStream>);

impl StuckServer {
    pub fn before(behind: SocketAddr, how: Stuck) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::new(State {
            how,
            behind,
            behaves: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
        });
        let shared = Arc::clone(&state);
        // The threads end with their connections, and with the process.
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&shared);
                thread::spawn(move || match state.behaves.load(Ordering::Relaxed) {
                    true => lead(client, state.behind),
                    false => {
                        state.connections.fetch_add(1, Ordering::Relaxed);
                        serve(client, state.how)
                    }
                });
            }
        });
        Self { address, state }
    }

    pub fn behave(&self) {
        self.state.behaves.store(true, Ordering::Relaxed);
    }

    /// Waits for so many connections in all.
    pub fn wait_for_connections(&self, count: usize) {
        wait_until("connections", || {
            self.state.connections.load(Ordering::Relaxed) >= count
        });
    }
}

fn lead(mut client: TcpStream, behind: SocketAddr) -> Result<()> {
    let mut server = TcpStream::connect(behind)?;
    let (mut from_server, mut to_client) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || std::io::copy(&mut from_server, &mut to_client));
    std::io::copy(&mut client, &mut server).map(drop)
}

/// Reads all that a client sends; a thread for each request answers it.
fn serve(mut client: TcpStream, how: Stuck) -> Result<()> {
    let setting = |name: u8, value: u8| frame(SETTINGS, 0, 0, &[0, name, 0, 0, 0, value]);
    let writer = Arc::new(Writer(Mutex::new(client.try_clone()?)));
    match how {
        Stuck::Settings => writer.get_stuck_in(&setting(MAX_CONCURRENT_STREAMS, 100))?,
        Stuck::Streams => writer.send(&setting(MAX_CONCURRENT_STREAMS, 0))?,
        Stuck::Window => writer.send(&setting(INITIAL_WINDOW_SIZE, 0))?,
        _ => writer.send(&frame(SETTINGS, 0, 0, &[]))?,
    }
    client.read_exact(&mut [0; PREFACE])?;
    loop {
        let mut head = [0; 9];
        client.read_exact(&mut head)?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        client.read_exact(&mut payload)?;
        let stream = u32::from_be_bytes(stream);
        let is_due = match (how, kind) {
            (_, SETTINGS) if flags & ACK == 0 => {
                writer.send(&frame(SETTINGS, ACK, 0, &[]))?;
                false
            }
            (Stuck::Window, HEADERS) => true,
            (_, HEADERS | DATA) => flags & END_STREAM != 0,
            _ => false,
        };
        if is_due {
            let writer = Arc::clone(&writer);
            thread::spawn(move || writer.answer(stream, how));
        }
    }
}

impl Writer {
    fn send(&self, bytes: &[u8]) -> Result<()> {
        self.0.lock().unwrap().write_all(bytes)
    }

    /// Sends all but the last byte, slowly, and then nothing more.
    fn get_stuck_in(&self, bytes: &[u8]) -> Result<()> {
        let mut client = self.0.lock().unwrap();
        for byte in &bytes[..bytes.len() - 1] {
            client.write_all(&[*byte])?;
            thread::sleep(INTERVAL);
        }
        // Until the client closes the connection.
        while client.read(&mut [0; 1024])? > 0 {}
        Ok(())
    }

    fn answer(&self, stream: u32, how: Stuck) -> Result<()> {
        let response = frame(HEADERS, END_HEADERS, stream, RESPONSE);
        match how {
            Stuck::Settings | Stuck::Streams => {}
            Stuck::Window => loop {
                self.send(&frame(WINDOW_UPDATE, 0, stream, &[0, 0, 0, 1]))?;
                thread::sleep(INTERVAL);
            },
            Stuck::Headers => self.get_stuck_in(&response)?,
            Stuck::Body => {
                self.send(&response)?;
                // And it never ends.
                for byte in MESSAGE {
                    self.send(&frame(DATA, 0, stream, &[*byte]))?;
                    thread::sleep(INTERVAL);
                }
            }
            Stuck::Trailers => {
                self.send(&response)?;
                self.send(&frame(DATA, 0, stream, MESSAGE))?;
                let flags = END_HEADERS | END_STREAM;
                self.get_stuck_in(&frame(HEADERS, flags, stream, TRAILERS))?;
            }
        }
        Ok(())
    }
}
