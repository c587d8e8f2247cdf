//! The tables of open executables, and requests to them.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use profcol_debuginfo::{CommonLink, ExtractError};
use profcol_elf::Source;
use profcol_symbols::{CompanionFiles, Companions, Style, Symbols, Unresolved, demangle};
use rustix::time::{ClockId, clock_gettime};

use crate::{FileAddress, KeepGoing, Opened, ReadError, Resolved, ResolvedFrame};

#[derive(Default)]
pub struct Tables {
    held: HashMap<u64, Symbols>,
}

impl Tables {
    pub fn open(
        &mut self,
        key: u64,
        file: Rc<dyn Source>,
        companions: Rc<dyn Companions>,
        max_unpacked: u64,
    ) -> Result<Opened, ReadError> {
        let symbols =
            Symbols::read(file, companions, max_unpacked).map_err(|refused| match refused {
                ExtractError::NoNames => ReadError::NoNames,
                other => ReadError::Refused(other.to_string()),
            })?;
        let opened = Opened {
            weight: symbols.weight(),
            damage: symbols.damage().map(ToString::to_string),
        };
        self.held.insert(key, symbols);
        Ok(opened)
    }

    /// Resolves addresses until the CPU time is used up; `None` if the executable is not open.
    pub fn find(
        &mut self,
        key: u64,
        addresses: &[FileAddress],
        style: Option<Style>,
        budget: Duration,
    ) -> Option<Resolved> {
        let symbols = self.held.get_mut(&key)?;
        let began = cpu_time();
        let mut answers = Vec::with_capacity(addresses.len());
        for &address in addresses {
            answers.push(find(symbols, address, style));
            if cpu_time().saturating_sub(began) > budget {
                break;
            }
        }
        Some(Resolved {
            answers,
            cpu: Duration::ZERO,
        })
    }

    pub fn shrink(&mut self, key: u64, limit: usize) -> usize {
        let Some(symbols) = self.held.get_mut(&key) else {
            return 0;
        };
        symbols.shrink(limit);
        symbols.weight()
    }

    pub fn forget(&mut self, key: u64) {
        self.held.remove(&key);
    }
}

fn find(
    symbols: &mut Symbols,
    address: FileAddress,
    style: Option<Style>,
) -> Result<Vec<ResolvedFrame>, Unresolved> {
    let address = match address {
        FileAddress::Virtual(address) => address,
        FileAddress::FileOffset(offset) => {
            symbols.address_of(offset).ok_or(Unresolved::NotFound)?
        }
    };
    let frame = |found: profcol_symbols::Frame| {
        let system_name = found.name;
        let name = style.and_then(|style| demangle(&system_name, style));
        ResolvedFrame {
            name: name.map_or_else(|| Arc::clone(&system_name), Arc::from),
            system_name,
            file: found.file,
            start_line: found.start_line,
            line: found.line,
            column: found.column,
        }
    };
    Ok(symbols.find(address)?.into_iter().map(frame).collect())
}

/// A file whose reads fail after the stop, so that its reader gives up soon; or where to find such files.
pub struct UntilStop<S> {
    pub source: S,
    pub keep_going: KeepGoing,
}

impl<S: Source> Source for UntilStop<S> {
    fn length(&self) -> io::Result<u64> {
        self.source.length()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if !(self.keep_going)() {
            return Err(io::Error::other("profcol is stopping"));
        }
        self.source.read_at(buffer, offset)
    }
}

impl UntilStop<Rc<dyn CompanionFiles>> {
    fn opened(&self, file: Option<File>) -> Option<Rc<dyn Source>> {
        Some(Rc::new(UntilStop {
            source: file?,
            keep_going: Rc::clone(&self.keep_going),
        }))
    }
}

impl Companions for UntilStop<Rc<dyn CompanionFiles>> {
    fn separate(&self, executable: &dyn Source) -> Option<Rc<dyn Source>> {
        self.opened(self.source.separate(executable))
    }

    fn common(&self, link: &CommonLink) -> Option<Rc<dyn Source>> {
        self.opened(self.source.common(link))
    }

    fn package(&self) -> Option<Rc<dyn Source>> {
        self.opened(self.source.package())
    }

    fn split(&self, compiled_in: &Path, name: &Path) -> Option<Rc<dyn Source>> {
        self.opened(self.source.split(compiled_in, name))
    }
}

/// CPU time of this thread.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
