//! Bidirectional streaming gRPC calls.

use std::future::poll_fn;

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use http::HeaderMap;

use super::MAX_RESPONSE;
use super::answer::{check_answer, outcome, unpack};
use super::channel::Running;
use crate::compress::{Encoding, Level, compress_async};
use crate::grpc::frame::{Assembler, Framed};
use crate::grpc::{Code, Status};

/// A started call.
#[derive(Debug)]
pub(super) struct Opened {
    pub answer: ResponseFuture,
    pub sending: SendStream<Framed>,
    pub running: Running,
}

/// A call in progress. Dropping it cancels the call.
#[derive(Debug)]
pub struct GrpcStream {
    sending: SendStream<Framed>,
    receiving: Receiving,
    encoding: Option<Encoding>,
    running: Running,
}

#[derive(Debug)]
enum Receiving {
    /// The response has not started.
    Awaited(Box<ResponseFuture>),
    Begun(Box<StreamResponse>),
    Ended,
}

#[derive(Debug)]
struct StreamResponse {
    headers: HeaderMap,
    body: RecvStream,
    assembler: Assembler,
    /// Bytes received after the previous message.
    rest: Bytes,
}

impl GrpcStream {
    pub(super) fn new(opened: Opened, encoding: Option<Encoding>) -> GrpcStream {
        GrpcStream {
            sending: opened.sending,
            receiving: Receiving::Awaited(Box::new(opened.answer)),
            encoding,
            running: opened.running,
        }
    }

    /// Sends a message; `last` half-closes the stream. Returns once queued; the response reports delivery.
    pub async fn send(&mut self, message: Bytes, last: bool) -> Result<(), Status> {
        let (payload, compressed) = match self.encoding {
            Some(encoding) if !message.is_empty() => {
                let packed = compress_async(encoding, Level::default(), &message).await;
                (packed, true)
            }
            _ => (message, false),
        };
        let message = Framed::new(payload, compressed)?;
        let sent = self.sending.send_data(message, last);
        sent.map_err(|error| self.running.failure(error).status)
    }

    /// Waits until previously sent messages fit the server's flow-control window. Call it before each large message to
    /// bound buffering.
    pub async fn ready(&mut self) -> Result<(), Status> {
        self.sending.reserve_capacity(1);
        while self.sending.capacity() == 0 {
            // Resolves on capacity changes only.
            match poll_fn(|context| self.sending.poll_capacity(context)).await {
                Some(capacity) => capacity.map_err(|error| self.running.failure(error).status)?,
                None => {
                    let message = "transport: the server stopped reading the request";
                    return Err(Status::connection_lost(message));
                }
            };
        }
        Ok(())
    }

    /// The next message; `None` when the server has ended the call with OK.
    pub async fn receive(&mut self) -> Result<Option<Bytes>, Status> {
        let running = &self.running;
        let failed = |error: h2::Error| running.failure(error).status;
        if let Receiving::Awaited(answer) = &mut self.receiving {
            let (head, body) = answer.await.map_err(failed)?.into_parts();
            running.answered();
            // From here on it is up to the server when the call ends.
            running.ended();
            check_answer(head.status, &head.headers)?;
            self.receiving = Receiving::Begun(Box::new(StreamResponse {
                headers: head.headers,
                body,
                assembler: Assembler::new(MAX_RESPONSE),
                rest: Bytes::new(),
            }));
        }
        let Receiving::Begun(answer) = &mut self.receiving else {
            return Ok(None);
        };
        loop {
            if let Some(received) = answer.assembler.next(&mut answer.rest)? {
                return unpack(received, &answer.headers).await.map(Some);
            }
            let Some(data) = answer.body.data().await else {
                break;
            };
            let data = data.map_err(failed)?;
            // The stream's window is ours to open again; it only fails once the stream is over.
            let _ = answer.body.flow_control().release_capacity(data.len());
            answer.rest = data;
        }
        let trailers = answer.body.trailers().await.map_err(failed)?;
        outcome(&answer.headers, &trailers.unwrap_or_default())?;
        let assembler = std::mem::replace(&mut answer.assembler, Assembler::new(0));
        let is_whole = assembler.finish()?.is_none();
        self.receiving = Receiving::Ended;
        if is_whole {
            return Ok(None);
        }
        let message = "grpc: stream ended in the middle of a message";
        Err(Status::new(Code::Internal, message))
    }
}
