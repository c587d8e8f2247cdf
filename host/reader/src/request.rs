//! A request to a reader of executables, and the companion files that it asks for meanwhile.

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use prost::Message;

use crate::failure::Interrupted;
use crate::messages::{
    Empty, Invalid, Request, RequestKind, Response, ResponseKind, WireCompanionRequest,
};
use crate::process::{Next, ReaderProcess};

/// Returns the response and the time that it took. `companion` finds what the reader asks for, or rejects it.
pub fn request(
    process: &mut ReaderProcess,
    kind: RequestKind,
    files: &[BorrowedFd<'_>],
    mut companion: impl FnMut(WireCompanionRequest) -> Result<Option<File>, Invalid>,
    keep_going: &dyn Fn() -> bool,
) -> Result<(ResponseKind, Duration), Interrupted> {
    let request = Request::from(kind).encode_to_vec();
    let mut answer = None;
    let took = process.exchange(&request, files, keep_going, |message| {
        let response = Response::decode(&*message.content);
        let response = response.map_err(|_| Invalid("a message that is no response"))?;
        match response.kind {
            Some(ResponseKind::Companion(request)) => {
                let found = companion(request)?;
                let reply = Request::from(RequestKind::Companion(Empty {}));
                Ok(Next::Reply(reply.encode_to_vec(), found))
            }
            Some(kind) => {
                answer = Some(kind);
                Ok(Next::Done)
            }
            None => Err(Invalid("an empty response")),
        }
    })?;
    match answer {
        Some(answer) => Ok((answer, took)),
        None => Err(process.reject("an empty response")),
    }
}
