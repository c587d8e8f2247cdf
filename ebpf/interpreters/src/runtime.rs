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
    pub const ALL: [Self; 9] = [
        Self::Python,
        Self::V8,
        Self::Java,
        Self::Ruby,
        Self::Php,
        Self::Perl,
        Self::LuaJit,
        Self::Beam,
        Self::DotNet,
    ];

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

    /// In metrics and logs, and the prefix of frames without a name.
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

    /// As users know it, in messages.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Python => "Python",
            Self::V8 => "V8",
            Self::Java => "HotSpot",
            Self::Ruby => "Ruby",
            Self::Php => "PHP",
            Self::Perl => "Perl",
            Self::LuaJit => "LuaJIT",
            Self::Beam => "Erlang/OTP",
            Self::DotNet => ".NET",
        }
    }

    /// By its [name](Self::name).
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
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
