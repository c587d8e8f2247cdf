//! The runtime in a file, as metrics, logs and `profcol processes` name it.

use profcol_ebpf_unwind::ElfCode;
use profcol_elf::Source;

use crate::beam::Beam;
use crate::dotnet::CoreClr;
use crate::hotspot::HotSpot;
use crate::{DetectedInterpreter, Runtime, Unsupported, detect};

/// A runtime in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRuntime {
    pub runtime: Runtime,
    /// None if it is not known.
    pub version: Option<String>,
    /// Why its functions are not shown.
    pub unsupported: Option<String>,
}

impl FileRuntime {
    /// The runtime in a file, however it is found.
    pub fn find(code: &ElfCode, source: &(impl Source + ?Sized)) -> Option<Self> {
        Self::of_detected(&detect(code, source))
            .or_else(|| Self::of_processes(code, source))
            .or_else(|| match CoreClr::detect(code, source) {
                Ok(found) => Some(Self::supported(Runtime::DotNet, Some(found?.version))),
                Err(error) => Some(Self::refused(Runtime::DotNet, &error)),
            })
    }

    /// The runtime in a file in which an interpreter was looked for.
    pub fn of_detected(
        detected: &Result<Option<DetectedInterpreter>, Unsupported>,
    ) -> Option<Self> {
        match detected {
            Ok(detected) => {
                let detected = detected.as_ref()?;
                let version = Some(detected.version.clone());
                Some(Self::supported(detected.runtime, version))
            }
            Err(error) => {
                let mut runtimes = Runtime::ALL.into_iter();
                let runtime = runtimes.find(|it| it.title() == error.runtime)?;
                Some(Self::refused(runtime, error))
            }
        }
    }

    /// A runtime whose functions are found through its processes, except for .NET.
    pub fn of_processes(code: &ElfCode, source: &(impl Source + ?Sized)) -> Option<Self> {
        match HotSpot::detect(code, source) {
            Ok(None) => {}
            Ok(Some(found)) => {
                let version = found.version.map(|version| version.to_string());
                return Some(Self::supported(Runtime::Java, version));
            }
            Err(error) => return Some(Self::refused(Runtime::Java, &error)),
        }
        match Beam::detect(code, source) {
            Ok(found) => Some(Self::supported(Runtime::Beam, Some(found?.release))),
            Err(error) => Some(Self::refused(Runtime::Beam, &error)),
        }
    }

    pub fn supported(runtime: Runtime, version: Option<String>) -> Self {
        Self {
            runtime,
            version,
            unsupported: None,
        }
    }

    pub fn refused(runtime: Runtime, error: &Unsupported) -> Self {
        Self {
            runtime,
            version: error.version().map(str::to_owned),
            unsupported: Some(error.to_string()),
        }
    }
}
