//! Runs the `identify` program: looks up the file behind an address of this process.

use std::fs::File;
use std::os::fd::AsFd;

use aya::Ebpf;
use aya::maps::{Array, MapData, MapError};
use aya::programs::{ProgramError, RawTracePoint, RawTracePointRunOptions, TestRun};
use profcol_ebpf_common::file::FileId;
use profcol_ebpf_common::identify::{Identified, status};

use crate::load_error::LoadError;
use crate::loaded_object;
use crate::sideband;
use crate::sys::Mapped;

/// The name of the program.
pub const IDENTIFY: &str = "identify";

/// Keeps the `identify` program loaded.
pub struct Identifier {
    pub object: Ebpf,
    pub identified: Array<MapData, Identified>,
}

#[derive(Debug, thiserror::Error)]
pub enum IdentifyError {
    #[error("failed to run the BPF program `identify`: {0}")]
    Run(#[from] ProgramError),
    #[error("failed to read the result of the BPF program `identify`: {0}")]
    Identified(#[from] MapError),
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// Computes the ID of an open file in the same way as for samples.
pub enum FileIdentifier {
    /// Like the programs that read the kernel's VMA tree.
    Kernel(Box<Identifier>),
    /// Like perf events.
    Events,
}

impl FileIdentifier {
    pub fn is_same_file(&mut self, opened: &File, id: FileId) -> Result<bool, IdentifyError> {
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

/// The program that identifies the file mapped at an address of this process.
pub fn program(object: &mut Ebpf) -> Result<&mut RawTracePoint, LoadError> {
    loaded_object::program(object, IDENTIFY)
}

/// Retries if the tree changes during the lookup.
const MAX_ATTEMPTS: usize = 10;

impl Identifier {
    pub fn identify(&mut self, address: u64) -> Result<Option<FileId>, IdentifyError> {
        Ok(self.mapping_at(address)?.map(|identified| identified.id))
    }

    /// The mapping that holds the address.
    pub fn mapping_at(&mut self, address: u64) -> Result<Option<Identified>, IdentifyError> {
        for _ in 0..MAX_ATTEMPTS {
            let identified = self.run([address, 0])?;
            match identified.status {
                status::MAPPING => return Ok(Some(identified)),
                status::CHANGING => {}
                _ => break,
            }
        }
        Ok(None)
    }

    /// The current system call of this thread, if its registers are at this offset in its stack.
    pub fn current_syscall(&mut self, user_regs_offset: u64) -> Result<Option<u64>, IdentifyError> {
        let identified = self.run([0, user_regs_offset])?;
        Ok((identified.status == status::REGISTERS).then_some(identified.start))
    }

    fn run(&mut self, question: [u64; 2]) -> Result<Identified, IdentifyError> {
        self.identified.set(0, Identified::default(), 0)?;
        let program = program(&mut self.object)?;
        let mut options = RawTracePointRunOptions::new();
        for (argument, word) in options.args.iter_mut().zip(question) {
            *argument = word;
        }
        program.test_run(options)?;
        Ok(self.identified.get(&0, 0)?)
    }
}
