//! Asks the kernel which file is behind an address of this process.

use std::fs::File;
use std::os::fd::AsFd;

use aya::Ebpf;
use aya::maps::{Array, MapData, MapError};
use aya::programs::{ProgramError, RawTracePoint, RawTracePointRunOptions, TestRun};
use profcol_ebpf_common::file::FileId;
use profcol_ebpf_common::identify::{Answer, found};

use crate::programs::{LoadError, identifier};
use crate::sideband;
use crate::sys::Mapped;

/// Holds the loaded programs: what is not asked any more is unloaded with it.
pub struct Identifier {
    pub object: Ebpf,
    pub answer: Array<MapData, Answer>,
}

#[derive(Debug, thiserror::Error)]
pub enum IdentifyError {
    #[error("the kernel does not run the identifying program: {0}")]
    Run(#[from] ProgramError),
    #[error("its answer cannot be read: {0}")]
    Answer(#[from] MapError),
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// Tells what a file is that was opened here, in the same way as samples.
pub enum FileIdentifier {
    /// As the programs that read the kernel's own tree.
    Kernel(Box<Identifier>),
    /// As events do.
    Events,
}

impl FileIdentifier {
    pub fn is_it(&mut self, opened: &File, id: FileId) -> Result<bool, IdentifyError> {
        match self {
            Self::Kernel(identifier) => {
                let Ok(mapped) = Mapped::first_page(opened.as_fd()) else {
                    return Ok(false);
                };
                Ok(identifier.identify(mapped.address())? == Some(id))
            }
            Self::Events => Ok(sideband::identify(opened).is_ok_and(|found| found == Some(id))),
        }
    }
}

/// A tree that changes under the program is read again, up to this often.
const TRIES: usize = 10;

impl Identifier {
    pub fn identify(&mut self, address: u64) -> Result<Option<FileId>, IdentifyError> {
        Ok(self.ask(address)?.map(|answer| answer.id))
    }

    /// The mapping that holds the address.
    pub fn ask(&mut self, address: u64) -> Result<Option<Answer>, IdentifyError> {
        for _ in 0..TRIES {
            let answer = self.run([address, 0])?;
            match answer.found {
                found::MAPPING => return Ok(Some(answer)),
                found::CHANGING => {}
                _ => break,
            }
        }
        Ok(None)
    }

    /// The system call that this thread is in, if its registers are so far up its stack.
    pub fn system_call(&mut self, registers_at: u64) -> Result<Option<u64>, IdentifyError> {
        let answer = self.run([0, registers_at])?;
        Ok((answer.found == found::REGISTERS).then_some(answer.start))
    }

    fn run(&mut self, question: [u64; 2]) -> Result<Answer, IdentifyError> {
        self.answer.set(0, Answer::default(), 0)?;
        let program: &mut RawTracePoint = identifier(&mut self.object)?;
        let mut options = RawTracePointRunOptions::new();
        for (argument, word) in options.args.iter_mut().zip(question) {
            *argument = word;
        }
        program.test_run(options)?;
        Ok(self.answer.get(&0, 0)?)
    }
}
