//! The process that builds tables: answers the profiler until it closes the socket.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use profcol_ebpf_unwind::{ElfCode, Index, UnwindTableError};
use profcol_reader::{Channel, Received, SendMode, bounded, notify_ready};
use prost::Message;

use crate::messages::{
    Build, LazyTable, Pages, Request, RequestKind, Response, ResponseKind, WireFileFeatures, chunks,
};
use crate::{Built, FileFeatures, OpenTable};

/// Files read by pages.
type Indices = HashMap<u64, (File, Index)>;

/// Builds tables for the profiler, until it closes the socket. `missing` names the restrictions that the kernel lacks.
pub fn serve(socket: OwnedFd, missing: String) -> io::Result<()> {
    let mut channel = Channel::new(socket);
    notify_ready(&channel, missing)?;
    let mut indices = Indices::new();
    loop {
        let message = match channel.receive()? {
            Received::Message(message) => message,
            Received::WouldBlock => {
                channel.wait(None)?;
                continue;
            }
            Received::Closed => return Ok(()),
        };
        let request = Request::decode(&*message.content)?;
        let answer = match request.kind.ok_or(io::ErrorKind::InvalidData)? {
            RequestKind::Build(request) => match open(message.files) {
                Ok((file, elf)) => {
                    if !request.is_reopened {
                        let features = WireFileFeatures::from(&FileFeatures::detect(&elf, &file));
                        respond(&channel, ResponseKind::Features(features))?;
                    }
                    build(&mut indices, &request, file, &elf)
                }
                Err(why) => Err(why),
            },
            RequestKind::Pages(request) => pages(&indices, &request),
            RequestKind::Forget(key) => {
                indices.remove(&key);
                continue;
            }
        };
        match answer {
            Ok(Built::Lazy) => respond(&channel, ResponseKind::Lazy(LazyTable {}))?,
            Ok(Built::Whole(table)) => {
                for chunk in chunks(&table) {
                    respond(&channel, ResponseKind::Chunk(chunk))?;
                }
            }
            Err(why) => respond(&channel, ResponseKind::Refused(bounded(why)))?,
        }
    }
}

fn open(files: Vec<OwnedFd>) -> Result<(File, ElfCode), String> {
    let file = files.into_iter().next().map(File::from);
    let file = file.ok_or_else(|| "too many open files".to_owned())?;
    let elf = ElfCode::read(&file).map_err(refused)?;
    Ok((file, elf))
}

fn build(
    indices: &mut Indices,
    request: &Build,
    file: File,
    elf: &ElfCode,
) -> Result<Built, String> {
    match OpenTable::of(elf, &file, request.may_be_lazy).map_err(refused)? {
        OpenTable::Whole(table) => Ok(Built::Whole(table)),
        OpenTable::Index(index) => {
            indices.insert(request.key, (file, index));
            Ok(Built::Lazy)
        }
    }
}

fn pages(indices: &Indices, request: &Pages) -> Result<Built, String> {
    let Some((file, index)) = indices.get(&request.key) else {
        return Err("not open".to_owned());
    };
    let table = index.pages(file, request.begin, request.count);
    table.map(Built::Whole).map_err(refused)
}

fn refused(error: UnwindTableError) -> String {
    error.to_string()
}

fn respond(channel: &Channel, kind: ResponseKind) -> io::Result<()> {
    let content = Response::from(kind).encode_to_vec();
    channel.send(&content, &[], SendMode::Blocking)
}
