//! One end of a socket pair: messages of a bounded size, with open files.
//!
//! The kernel keeps packets apart and bounds their size, so a message is one packet or several. Nothing here waits for the
//! rest of a message: the other end may be hostile.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};

/// Size of a message.
pub const MAX_MESSAGE: usize = 1 << 20;
/// Size of a packet's content, well below what the kernel allows by default.
const MAX_PACKET: usize = 64 << 10;
/// Files sent with one message.
const MAX_FILES: usize = 2;
/// The first byte of a packet.
const LAST: u8 = 0;
const MORE: u8 = 1;

pub struct Channel {
    socket: OwnedFd,
    /// The packets of a message that is not complete.
    partial: Message,
}

#[derive(Default)]
pub struct Message {
    pub content: Vec<u8>,
    pub files: Vec<OwnedFd>,
}

pub enum Received {
    Message(Message),
    /// Nothing has arrived yet.
    WouldBlock,
    /// The other end is closed.
    Closed,
}

/// Whether a send waits until the other end has read earlier messages, or fails.
#[derive(Clone, Copy)]
pub enum SendMode {
    Blocking,
    NonBlocking,
}

impl Channel {
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Self::new(one), Self::new(other)))
    }

    pub fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            partial: Message::default(),
        }
    }

    pub fn into_socket(self) -> OwnedFd {
        self.socket
    }

    pub fn send(&self, content: &[u8], files: &[BorrowedFd<'_>], mode: SendMode) -> io::Result<()> {
        if content.len() > MAX_MESSAGE || files.len() > MAX_FILES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = match mode {
            SendMode::Blocking => SendFlags::NOSIGNAL,
            SendMode::NonBlocking => SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        };
        let mut rest = content;
        let mut files = files;
        loop {
            let (packet, next) = rest.split_at(rest.len().min(MAX_PACKET));
            let mark = [if next.is_empty() { LAST } else { MORE }];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let pieces = [IoSlice::new(&mark), IoSlice::new(packet)];
            retry(|| sendmsg(&self.socket, &pieces, &mut control, flags))?;
            if next.is_empty() {
                return Ok(());
            }
            (rest, files) = (next, &[]);
        }
    }

    /// Takes what has arrived, without waiting.
    pub fn receive(&mut self) -> io::Result<Received> {
        loop {
            let mut mark = [LAST];
            let mut packet = vec![0; MAX_PACKET];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut pieces = [IoSliceMut::new(&mut mark), IoSliceMut::new(&mut packet)];
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let got = match retry(|| recvmsg(&self.socket, &mut pieces, &mut control, flags)) {
                Ok(got) => got,
                Err(Errno::AGAIN) => return Ok(Received::WouldBlock),
                Err(Errno::CONNRESET) => return Ok(Received::Closed),
                Err(error) => return Err(error.into()),
            };
            for rights in control.drain() {
                if let RecvAncillaryMessage::ScmRights(files) = rights {
                    self.partial.files.extend(files);
                }
            }
            let Some(size) = got.bytes.checked_sub(mark.len()) else {
                return Ok(Received::Closed);
            };
            let packet = packet.get(..size).unwrap_or_default();
            let is_too_large = self.partial.content.len() + packet.len() > MAX_MESSAGE;
            if got.flags.contains(ReturnFlags::TRUNC)
                || is_too_large
                || self.partial.files.len() > MAX_FILES
            {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a message is too large",
                ));
            }
            self.partial.content.extend_from_slice(packet);
            if mark == [LAST] {
                return Ok(Received::Message(std::mem::take(&mut self.partial)));
            }
        }
    }

    /// Waits until there is something to receive, or for this time; without one, for as long as it takes.
    pub fn wait(&self, time: Option<Duration>) -> io::Result<()> {
        let time = time.map(timespec);
        let mut sockets = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut sockets, time.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;

    use super::*;

    fn received(channel: &mut Channel) -> Message {
        match channel.receive().unwrap() {
            Received::Message(message) => message,
            _ => panic!("nothing arrived"),
        }
    }

    #[test]
    fn messages_arrive_whole_and_in_order() {
        let (one, mut other) = Channel::pair().unwrap();
        assert!(matches!(other.receive().unwrap(), Received::WouldBlock));
        let large: Vec<u8> = (0..150_000_u32).map(|it| it as u8).collect();
        one.send(&large, &[], SendMode::NonBlocking).unwrap();
        one.send(b"", &[], SendMode::NonBlocking).unwrap();
        one.send(b"last", &[], SendMode::NonBlocking).unwrap();
        drop(one);
        assert_eq!(received(&mut other).content, large);
        assert_eq!(received(&mut other).content, b"");
        assert_eq!(received(&mut other).content, b"last");
        assert!(matches!(other.receive().unwrap(), Received::Closed));
    }

    #[test]
    fn files_arrive_with_their_message() {
        let (one, mut other) = Channel::pair().unwrap();
        let file = File::open("/proc/self/comm").unwrap();
        one.send(b"none", &[], SendMode::NonBlocking).unwrap();
        one.send(
            b"some",
            &[file.as_fd(), file.as_fd()],
            SendMode::NonBlocking,
        )
        .unwrap();
        assert_eq!(received(&mut other).files.len(), 0);
        let message = received(&mut other);
        assert_eq!(message.files.len(), 2);
        let mut text = String::new();
        for file in message.files {
            File::from(file).read_to_string(&mut text).unwrap();
        }
        assert!(!text.is_empty());
    }

    #[test]
    fn a_message_without_an_end_is_refused() {
        let (one, mut other) = Channel::pair().unwrap();
        let packet = [[MORE].as_slice(), &[0; MAX_PACKET]].concat();
        let sent = std::thread::spawn(move || {
            let mut control = SendAncillaryBuffer::default();
            let mut count = 0;
            while sendmsg(
                &one,
                &[IoSlice::new(&packet)],
                &mut control,
                SendFlags::NOSIGNAL,
            )
            .is_ok()
            {
                count += 1;
            }
            count
        });
        let refused = loop {
            match other.receive() {
                Ok(Received::WouldBlock) => other.wait(None).unwrap(),
                Ok(_) => panic!("no message is complete"),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        drop(other);
        assert!(sent.join().unwrap() >= MAX_MESSAGE / MAX_PACKET);
    }

    #[test]
    fn a_send_to_an_end_that_does_not_read_fails() {
        let (one, _other) = Channel::pair().unwrap();
        let sends = (0..1_000_000).map(|_| one.send(b"unread", &[], SendMode::NonBlocking));
        let refused = sends.filter_map(Result::err).next().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    }
}
