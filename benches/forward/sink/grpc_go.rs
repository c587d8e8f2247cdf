//! A server on grpc-go that decodes nothing, using the program in `client/`.

use std::net::SocketAddr;

use anyhow::Result;

use super::{Messages, Received, scrape, sum};
use crate::program::{self, Program};

const PROGRAM: &str = "target/peers/forward-client";
/// The flag byte and the length before each message.
const HEADER: u64 = 5;

pub struct Sink {
    pub address: SocketAddr,
    counts: SocketAddr,
    samples_per_request: u64,
    _program: Program,
}

impl Sink {
    pub fn start(samples_per_request: u64) -> Result<Self> {
        let (address, counts) = (program::free_address()?, program::free_address()?);
        let (listen, count) = (address.to_string(), counts.to_string());
        let arguments = ["-listen", &listen, "-counts", &count];
        Ok(Self {
            address,
            counts,
            samples_per_request,
            _program: Program::start_with(PROGRAM, &arguments, address)?,
        })
    }

    pub fn received(&self) -> Result<Received> {
        let counts = scrape(self.counts)?;
        let requests = sum(&counts, "requests")?;
        Ok(Received {
            samples: requests * self.samples_per_request,
            messages: Some(Messages {
                requests,
                bytes: sum(&counts, "bytes")? + requests * HEADER,
            }),
        })
    }
}
