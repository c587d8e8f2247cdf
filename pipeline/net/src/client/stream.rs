//! gRPC calls with messages both ways.

use std::future::poll_fn;

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use http::HeaderMap;

use super::MAX_ANSWER;
use super::channel::Running;
use super::grpc::{Opened, check_answer, outcome, unpack};
use crate::compress::{Encoding, Level, compress_async};
use crate::grpc::frame::{Assembler, Framed};
use crate::grpc::{Code, Status};

/// A call that is going on. Dropped, it is cancelled.
#[derive(Debug)]
pub struct GrpcStream {
    sending: SendStream<Framed>,
    receiving: Receiving,
    encoding: Option<Encoding>,
    running: Running,
}

#[derive(Debug)]
enum Receiving {
    /// The answer has not begun.
    Awaited(Box<ResponseFuture>),
    Begun(Box<Answer>),
    Ended,
}

#[derive(Debug)]
struct Answer {
    headers: HeaderMap,
    body: RecvStream,
    assembler: Assembler,
    /// Came with the message before.
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

    /// Sends a message, and with `last` says that it is the last one. It is on its way when this
    /// returns; whether it arrives is told by the answer.
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

    /// Waits until the server has taken what was sent before, but for what its window holds. Who
    /// sends much calls this before each message, so that not all of it waits here.
    pub async fn ready(&mut self) -> Result<(), Status> {
        self.sending.reserve_capacity(1);
        while self.sending.capacity() == 0 {
            // It tells of changes only.
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

    /// The next message; none when the server has ended the call and all is well.
    pub async fn receive(&mut self) -> Result<Option<Bytes>, Status> {
        let running = &self.running;
        let failed = |error: h2::Error| running.failure(error).status;
        if let Receiving::Awaited(answer) = &mut self.receiving {
            let (head, body) = answer.await.map_err(failed)?.into_parts();
            running.answered();
            check_answer(head.status, &head.headers)?;
            self.receiving = Receiving::Begun(Box::new(Answer {
                headers: head.headers,
                body,
                assembler: Assembler::new(MAX_ANSWER),
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
