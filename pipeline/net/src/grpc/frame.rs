//! gRPC message framing: one flag byte, four length bytes, the payload.
//!
//! Messages are sent as slices ([`Framed`]), never joined. They arrive as DATA frames: if one frame holds the whole
//! message, the message is a slice of it; otherwise the payload is copied once, into a buffer of its announced size.
//! The announced size is untrusted, so beyond [`TRUSTED`] the buffer grows as bytes arrive.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use profcol_admission::Admission;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Code, Status};
use crate::chunks::Chunks;
use crate::pace::Pace;

const PREFIX: usize = 5;
/// Announced sizes up to this are allocated upfront.
const TRUSTED: usize = 1 << 20;

/// An outgoing message.
#[derive(Debug)]
pub(crate) struct Framed {
    prefix: [u8; PREFIX],
    /// Bytes of `prefix` already sent.
    sent: usize,
    payload: Chunks,
}

impl Framed {
    /// Fails if the length does not fit four bytes.
    pub fn new(payload: impl Into<Chunks>, compressed: bool) -> Result<Framed, Status> {
        let payload = payload.into();
        let Ok(len) = u32::try_from(payload.remaining()) else {
            let message = format!("grpc: message too large ({} bytes)", payload.remaining());
            return Err(Status::new(Code::ResourceExhausted, message));
        };
        let [a, b, c, d] = len.to_be_bytes();
        let prefix = [u8::from(compressed), a, b, c, d];
        Ok(Framed {
            prefix,
            sent: 0,
            payload,
        })
    }
}

impl Buf for Framed {
    fn remaining(&self) -> usize {
        PREFIX - self.sent + self.payload.remaining()
    }

    fn chunk(&self) -> &[u8] {
        if self.sent < PREFIX {
            &self.prefix[self.sent..]
        } else {
            self.payload.chunk()
        }
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [std::io::IoSlice<'a>]) -> usize {
        let prefix = &self.prefix[self.sent..];
        match slices {
            [first, rest @ ..] if !prefix.is_empty() => {
                *first = std::io::IoSlice::new(prefix);
                1 + self.payload.chunks_vectored(rest)
            }
            slices => self.payload.chunks_vectored(slices),
        }
    }

    fn advance(&mut self, count: usize) {
        let of_prefix = count.min(PREFIX - self.sent);
        self.sent += of_prefix;
        self.payload.advance(count - of_prefix);
    }
}

/// The body of a response.
pub(crate) enum AnswerBody {
    /// An optional message, and the trailers.
    Unary {
        message: Option<Framed>,
        trailers: Option<HeaderMap>,
    },
    /// Messages from a running handler, and its result.
    Conversation {
        messages: mpsc::Receiver<Framed>,
        work: Option<Work>,
        trailers: Option<HeaderMap>,
    },
}

/// A running handler.
pub(crate) type Work = Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>;

impl AnswerBody {
    pub fn new(message: Framed, trailers: HeaderMap) -> AnswerBody {
        AnswerBody::Unary {
            message: Some(message),
            trailers: Some(trailers),
        }
    }

    pub fn empty() -> AnswerBody {
        AnswerBody::Unary {
            message: None,
            trailers: None,
        }
    }

    pub fn conversation(messages: mpsc::Receiver<Framed>, work: Work) -> AnswerBody {
        AnswerBody::Conversation {
            messages,
            work: Some(work),
            trailers: None,
        }
    }
}

impl Body for AnswerBody {
    type Data = Framed;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Framed>, Self::Error>>> {
        match &mut *self {
            AnswerBody::Unary { message, trailers } => {
                if let Some(message) = message.take() {
                    return Poll::Ready(Some(Ok(Frame::data(message))));
                }
                Poll::Ready(
                    trailers
                        .take()
                        .map(|trailers| Ok(Frame::trailers(trailers))),
                )
            }
            AnswerBody::Conversation {
                messages,
                work,
                trailers,
            } => {
                if let Some(working) = work
                    && let Poll::Ready(outcome) = working.as_mut().poll(context)
                {
                    *work = None;
                    let status = outcome.err().unwrap_or_else(|| Status::new(Code::Ok, ""));
                    let mut headers = HeaderMap::with_capacity(1);
                    status.write_to(&mut headers);
                    *trailers = Some(headers);
                }
                // Drain messages first; the sender is dropped at the end.
                match messages.poll_recv(context) {
                    Poll::Ready(Some(message)) => Poll::Ready(Some(Ok(Frame::data(message)))),
                    Poll::Ready(None) => Poll::Ready(
                        trailers
                            .take()
                            .map(|trailers| Ok(Frame::trailers(trailers))),
                    ),
                    Poll::Pending => Poll::Pending,
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            AnswerBody::Unary { message, trailers } => message.is_none() && trailers.is_none(),
            AnswerBody::Conversation { work, trailers, .. } => work.is_none() && trailers.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        // No size hint, so that no `content-length` is sent, as is usual for gRPC.
        SizeHint::default()
    }
}

/// A message as received, compressed if flagged.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub compressed: bool,
    pub payload: Bytes,
}

/// Assembles a message from received pieces.
#[derive(Debug)]
pub(crate) struct Assembler {
    limit: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    Prefix {
        bytes: [u8; PREFIX],
        filled: usize,
    },
    Payload {
        compressed: bool,
        announced: usize,
        bytes: Vec<u8>,
    },
    Done(Received),
}

impl Assembler {
    /// Refuses messages of more than `limit` bytes on the wire.
    pub fn new(limit: usize) -> Assembler {
        Assembler {
            limit,
            state: State::Prefix {
                bytes: [0; PREFIX],
                filled: 0,
            },
        }
    }

    /// Adds bytes of a unary call: excess bytes are an error.
    pub fn push(&mut self, mut data: Bytes) -> Result<(), Status> {
        self.fill(&mut data)?;
        if data.is_empty() {
            return Ok(());
        }
        let message = "grpc: more than one message in a unary call";
        Err(Status::new(Code::Internal, message))
    }

    /// Takes the bytes that belong to the message.
    fn fill(&mut self, data: &mut Bytes) -> Result<(), Status> {
        while !data.is_empty() {
            match &mut self.state {
                State::Prefix { bytes, filled } => {
                    let count = data.len().min(PREFIX - *filled);
                    bytes[*filled..*filled + count].copy_from_slice(&data.split_to(count));
                    *filled += count;
                    if *filled == PREFIX {
                        let prefix = *bytes;
                        self.begin(prefix, data)?;
                    }
                }
                State::Payload {
                    compressed,
                    announced,
                    bytes,
                } => {
                    let missing = *announced - bytes.len();
                    let piece = data.split_to(missing.min(data.len()));
                    if bytes.capacity() - bytes.len() < piece.len() {
                        // Grows fourfold, so a message is moved at most a few times.
                        let goal = (bytes.capacity() * 4).clamp(TRUSTED, *announced);
                        bytes.reserve_exact(goal.max(bytes.len() + piece.len()) - bytes.len());
                    }
                    bytes.extend_from_slice(&piece);
                    if bytes.len() == *announced {
                        let payload = Bytes::from(std::mem::take(bytes));
                        self.state = State::Done(Received {
                            compressed: *compressed,
                            payload,
                        });
                    }
                }
                State::Done(_) => break,
            }
        }
        Ok(())
    }

    /// For streaming calls: returns the message completed by `data`, if any. Leaves bytes of the next one in `data`.
    pub fn next(&mut self, data: &mut Bytes) -> Result<Option<Received>, Status> {
        self.fill(data)?;
        if !matches!(self.state, State::Done(_)) {
            return Ok(None);
        }
        std::mem::replace(self, Assembler::new(self.limit)).finish()
    }

    fn begin(&mut self, prefix: [u8; PREFIX], data: &mut Bytes) -> Result<(), Status> {
        let [flag, a, b, c, d] = prefix;
        let compressed = match flag {
            0 => false,
            1 => true,
            _ => {
                let message = format!("grpc: received unexpected payload format {flag}");
                return Err(Status::new(Code::Internal, message));
            }
        };
        let announced = u32::from_be_bytes([a, b, c, d]) as usize;
        if announced > self.limit {
            return Err(too_large(announced, self.limit));
        }
        self.state = if data.len() >= announced {
            let payload = data.split_to(announced);
            State::Done(Received {
                compressed,
                payload,
            })
        } else {
            let bytes = Vec::with_capacity(announced.min(TRUSTED));
            State::Payload {
                compressed,
                announced,
                bytes,
            }
        };
        Ok(())
    }

    /// The message; `None` if no byte was received.
    pub fn finish(self) -> Result<Option<Received>, Status> {
        match self.state {
            State::Done(received) => Ok(Some(received)),
            State::Prefix { filled: 0, .. } => Ok(None),
            State::Prefix { .. } | State::Payload { .. } => {
                let message = "grpc: stream ended in the middle of a message";
                Err(Status::new(Code::Internal, message))
            }
        }
    }
}

/// Worded as in grpc-go, for searchability.
fn too_large(size: usize, limit: usize) -> Status {
    let message = format!("grpc: received message larger than max ({size} vs. {limit})");
    Status::new(Code::ResourceExhausted, message)
}

/// The messages of a streaming request.
#[derive(Debug)]
pub(crate) struct Messages<B> {
    body: B,
    admission: Admission,
    assembler: Assembler,
    /// Bytes received after the previous message.
    rest: Bytes,
}

impl<B> Messages<B>
where
    B: Body<Data = Bytes, Error = hyper::Error> + Unpin,
{
    /// Refuses messages of more than `limit` bytes and those not admitted.
    pub fn new(body: B, limit: usize, admission: Admission) -> Messages<B> {
        Messages {
            body,
            admission,
            assembler: Assembler::new(limit),
            rest: Bytes::new(),
        }
    }

    /// The next message; `None` at the end of the request.
    pub async fn next(&mut self) -> Result<Option<Received>, Status> {
        let mut pace = Pace::start(Instant::now());
        loop {
            if let Some(received) = self.assembler.next(&mut self.rest)? {
                return Ok(Some(received));
            }
            match next_data(&mut self.body, &mut pace, &self.admission).await? {
                Some(data) => self.rest = data,
                None => break,
            }
        }
        let assembler = std::mem::replace(&mut self.assembler, Assembler::new(0));
        assembler.finish()
    }
}

/// Reads the message of a unary request and the end of the stream.
pub(crate) async fn read_unary<B>(
    body: &mut B,
    limit: usize,
    admission: &Admission,
) -> Result<Received, Status>
where
    B: Body<Data = Bytes, Error = hyper::Error> + Unpin,
{
    let mut assembler = Assembler::new(limit);
    let mut pace = Pace::start(Instant::now());
    while let Some(data) = next_data(body, &mut pace, admission).await? {
        assembler.push(data)?;
    }
    let message = "grpc: the request contains no message";
    assembler
        .finish()?
        .ok_or_else(|| Status::new(Code::Internal, message))
}

/// The next piece of a request; `None` at its end.
async fn next_data<B>(
    body: &mut B,
    pace: &mut Pace,
    admission: &Admission,
) -> Result<Option<Bytes>, Status>
where
    B: Body<Data = Bytes, Error = hyper::Error> + Unpin,
{
    while !body.is_end_stream() {
        match pace.next_frame(body).await {
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    pace.received(data.len());
                    admission.take(data.len())?;
                    return Ok(Some(data));
                }
            }
            Ok(Some(Err(error))) => {
                let message = format!("grpc: failed to read the message: {error}");
                return Err(Status::new(Code::Cancelled, message));
            }
            Ok(None) => break,
            Err(stalled) => return Err(Status::new(Code::DeadlineExceeded, stalled.to_string())),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wire(compressed: bool, payload: &[u8]) -> Vec<u8> {
        let mut framed = Framed::new(Bytes::copy_from_slice(payload), compressed).unwrap();
        framed.copy_to_bytes(framed.remaining()).to_vec()
    }

    fn assemble(pieces: &[&[u8]], limit: usize) -> Result<Option<Received>, Status> {
        let mut assembler = Assembler::new(limit);
        for piece in pieces {
            assembler.push(Bytes::copy_from_slice(piece))?;
        }
        assembler.finish()
    }

    #[test]
    fn a_message_in_one_frame_is_not_copied() {
        let data = Bytes::from(wire(true, b"hello"));
        let at = data[PREFIX..].as_ptr();
        let mut assembler = Assembler::new(5);
        assembler.push(data).unwrap();
        let received = assembler.finish().unwrap().unwrap();
        assert_eq!(
            (received.compressed, &received.payload[..]),
            (true, &b"hello"[..])
        );
        assert_eq!(received.payload.as_ptr(), at);
    }

    #[test]
    fn refuses_a_message_over_the_limit() {
        let error = assemble(&[&[0, 0, 0x4c, 0x4b, 0x40]], 4_194_304).unwrap_err();
        assert_eq!(error.code, Code::ResourceExhausted);
        assert_eq!(
            error.message,
            "grpc: received message larger than max (5000000 vs. 4194304)"
        );
    }

    #[test]
    fn refuses_anything_but_a_single_message() {
        for (pieces, code) in [
            (&[&[2, 0, 0, 0, 0][..]][..], Code::Internal),
            (&[&[0, 0, 0, 0, 9], b"short"], Code::Internal),
            (&[&[0, 0]], Code::Internal),
            (&[&[0, 0, 0, 0, 1], b"ab"], Code::Internal),
        ] {
            assert_eq!(
                assemble(pieces, 100).map_err(|e| e.code),
                Err(code),
                "{pieces:?}"
            );
        }
        assert_eq!(assemble(&[], 100), Ok(None));
        assert!(
            assemble(&[&[0, 0, 0, 0, 0]], 100)
                .unwrap()
                .unwrap()
                .payload
                .is_empty()
        );
    }

    #[test]
    fn a_large_announced_size_alone_takes_little_memory() {
        let mut assembler = Assembler::new(usize::MAX);
        assembler
            .push(Bytes::from_static(&[0, 255, 255, 255, 255, 1]))
            .unwrap();
        let State::Payload { bytes, .. } = &assembler.state else {
            panic!("no payload")
        };
        assert!(bytes.capacity() <= TRUSTED);
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_message(
            payload in proptest::collection::vec(any::<u8>(), 0..3_000),
            cuts in proptest::collection::vec(1usize..700, 0..20),
            compressed: bool,
        ) {
            let wire = wire(compressed, &payload);
            let (mut rest, mut pieces) = (&wire[..], vec![]);
            for cut in cuts {
                let (piece, tail) = rest.split_at(cut.min(rest.len()));
                pieces.push(piece);
                rest = tail;
            }
            pieces.push(rest);
            let received = assemble(&pieces, 3_000).unwrap().unwrap();
            prop_assert_eq!(received, Received { compressed, payload: payload.into() });
        }

        #[test]
        fn its_slices_are_sent_whole_from_any_position(payload: Vec<u8>, cut: usize, sent in 0usize..50) {
            let wire = wire(false, &payload);
            let payload = Bytes::from(payload);
            let cut = cut % (payload.len() + 1);
            let chunks: Chunks = [payload.slice(..cut), payload.slice(cut..)].into_iter().collect();
            let mut framed = Framed::new(chunks, false).unwrap();
            let sent = sent.min(framed.remaining());
            framed.advance(sent);
            let mut slices = [std::io::IoSlice::new(&[]); 4];
            let used = framed.chunks_vectored(&mut slices);
            let joined: Vec<u8> = slices[..used].iter().flat_map(|s| s.to_vec()).collect();
            prop_assert_eq!(joined, &wire[sent..]);
        }
    }
}
