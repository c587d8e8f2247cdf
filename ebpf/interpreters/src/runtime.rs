//! The runtimes, by their numbers in frames and their names in profiles.

use profcol_ebpf_common::interpreter::runtime;
use serde::{Deserialize, Serialize};

/// The supported runtimes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Runtime {
    Python,
    V8,
    Java,
    Ruby,
    Php,
    Perl,
    LuaJit,
    Beam,
    DotNet,
}

impl Runtime {
    /// The value of `profile.frame.type` in the semantic conventions.
    pub fn frame_type(self) -> &'static str {
        match self {
            Self::Python => "cpython",
            Self::V8 => "v8js",
            Self::Java => "jvm",
            Self::Ruby => "ruby",
            Self::Php => "php",
            Self::Perl => "perl",
            Self::LuaJit => "luajit",
            Self::Beam => "beam",
            Self::DotNet => "dotnet",
        }
    }

    /// The prefix of frames without a name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::V8 => "v8",
            Self::Java => "java",
            Self::Ruby => "ruby",
            Self::Php => "php",
            Self::Perl => "perl",
            Self::LuaJit => "luajit",
            Self::Beam => "beam",
            Self::DotNet => "dotnet",
        }
    }

    /// Whether it is found through a process, not through its file.
    pub fn is_of_process(self) -> bool {
        matches!(self, Self::Java | Self::Beam | Self::DotNet)
    }

    /// By its number in frames.
    pub fn from_number(number: u32) -> Option<Self> {
        match number {
            runtime::PYTHON => Some(Self::Python),
            runtime::V8 | runtime::V8_GENERATED => Some(Self::V8),
            runtime::HOTSPOT_INTERPRETED | runtime::HOTSPOT_COMPILED | runtime::HOTSPOT_STUB => {
                Some(Self::Java)
            }
            runtime::RUBY => Some(Self::Ruby),
            runtime::PHP => Some(Self::Php),
            runtime::PERL => Some(Self::Perl),
            runtime::LUAJIT => Some(Self::LuaJit),
            runtime::BEAM => Some(Self::Beam),
            runtime::DOTNET => Some(Self::DotNet),
            _ => None,
        }
    }
}
