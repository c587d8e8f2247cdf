//! What a frame's code is: its file or runtime, how it runs, and its language.

use serde::{Deserialize, Serialize};

/// The code of a location.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Code<'a> {
    /// The file name of the executable or library, or the runtime of code that has none.
    pub binary: &'a str,
    pub kind: FrameKind,
    pub language: Language,
}

#[derive(
    Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize,
)]
#[serde(rename_all = "lowercase")]
pub enum FrameKind {
    #[default]
    Native,
    Kernel,
    /// Compiled at run time.
    Jit,
    Interpreted,
    Inlined,
    /// Not a function: the reason why a stack ends.
    Marker,
    /// Run by a language runtime that may interpret or compile it.
    Runtime,
}

/// The language of a function, as far as its frame type says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Language {
    #[default]
    Unknown,
    Kernel,
    /// C, C++ and others that the frame type does not tell apart.
    Native,
    Go,
    Rust,
    Python,
    JavaScript,
    Java,
    DotNet,
    Ruby,
    Php,
    Perl,
    Lua,
    Erlang,
}

/// How a runtime runs a function: the values of the attribute `profcol.frame.code`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    Interpreted,
    Jit,
    /// Compiled ahead of time.
    Aot,
}

// === impl FrameKind ===

impl FrameKind {
    pub const ALL: [Self; 7] = [
        Self::Native,
        Self::Kernel,
        Self::Jit,
        Self::Interpreted,
        Self::Inlined,
        Self::Marker,
        Self::Runtime,
    ];

    /// Classifies a frame by its attributes `profile.frame.type` and `profcol.frame.code`, else by the file of its
    /// mapping.
    pub fn of(frame_type: &str, execution: Option<Execution>, binary: &str) -> Self {
        let is_kernel =
            binary == "vmlinux" || binary.starts_with("[kernel") || binary.ends_with(".ko");
        match (frame_type, binary) {
            ("kernel", _) => Self::Kernel,
            ("", _) if is_kernel => Self::Kernel,
            (_, "[jit]" | "[anon]") => Self::Jit,
            ("" | "native" | "go" | "rust", _) => Self::Native,
            _ => match execution {
                Some(Execution::Interpreted) => Self::Interpreted,
                Some(Execution::Jit) => Self::Jit,
                Some(Execution::Aot) => Self::Native,
                None => Self::Runtime,
            },
        }
    }
}

// === impl Language ===

impl Language {
    pub const ALL: [Self; 14] = [
        Self::Unknown,
        Self::Kernel,
        Self::Native,
        Self::Go,
        Self::Rust,
        Self::Python,
        Self::JavaScript,
        Self::Java,
        Self::DotNet,
        Self::Ruby,
        Self::Php,
        Self::Perl,
        Self::Lua,
        Self::Erlang,
    ];

    /// By the value of `profile.frame.type`.
    pub fn of_frame_type(frame_type: &str) -> Self {
        let mut all = Self::ALL.into_iter().filter(|it| *it != Self::Unknown);
        let found = all.find(|language| language.frame_type() == frame_type);
        found.unwrap_or_default()
    }

    /// Empty if it is unknown.
    pub fn frame_type(self) -> &'static str {
        match self {
            Self::Unknown => "",
            Self::Kernel => "kernel",
            Self::Native => "native",
            Self::Go => "go",
            Self::Rust => "rust",
            Self::Python => "cpython",
            Self::JavaScript => "v8js",
            Self::Java => "jvm",
            Self::DotNet => "dotnet",
            Self::Ruby => "ruby",
            Self::Php => "php",
            Self::Perl => "perl",
            Self::Lua => "luajit",
            Self::Erlang => "beam",
        }
    }

    /// Empty if it is unknown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "",
            Self::Kernel => "kernel",
            Self::Native => "native",
            Self::Go => "Go",
            Self::Rust => "Rust",
            Self::Python => "Python",
            Self::JavaScript => "JavaScript",
            Self::Java => "Java",
            Self::DotNet => ".NET",
            Self::Ruby => "Ruby",
            Self::Php => "PHP",
            Self::Perl => "Perl",
            Self::Lua => "Lua",
            Self::Erlang => "Erlang",
        }
    }

    /// Whether a runtime runs its functions.
    pub(crate) fn has_runtime(self) -> bool {
        !self.is_machine_code() && self != Self::Unknown
    }

    fn is_machine_code(self) -> bool {
        matches!(self, Self::Kernel | Self::Native | Self::Go | Self::Rust)
    }
}

// === impl Execution ===

impl Execution {
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Interpreted, Self::Jit, Self::Aot];
        all.into_iter().find(|it| it.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Interpreted => "interpreted",
            Self::Jit => "jit",
            Self::Aot => "aot",
        }
    }
}

// === impl Code ===

impl<'a> Code<'a> {
    /// The `profile.frame.type` from which this is found again; empty without one.
    pub(crate) fn frame_type(&self) -> &'a str {
        match (self.language.frame_type(), self.kind) {
            // Its runtime.
            ("", FrameKind::Runtime | FrameKind::Interpreted) => self.binary,
            (frame_type, _) => frame_type,
        }
    }

    /// The `profcol.frame.code` from which this is found again.
    pub(crate) fn execution(&self) -> Option<Execution> {
        match self.kind {
            FrameKind::Interpreted => Some(Execution::Interpreted),
            FrameKind::Jit if self.language.has_runtime() => Some(Execution::Jit),
            FrameKind::Native if self.language.has_runtime() => Some(Execution::Aot),
            _ => None,
        }
    }

    /// Whether its binary is that of a mapping, not the name of its runtime.
    pub(crate) fn has_mapping(&self) -> bool {
        let is_of_file = self.language.is_machine_code() || self.binary != self.frame_type();
        is_of_file && self.kind != FrameKind::Marker
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_classified_by_type_and_execution() {
        use Execution::{Aot, Interpreted, Jit};
        for (frame_type, execution, binary, kind, language) in [
            ("native", None, "libc.so.6", FrameKind::Native, "native"),
            ("go", None, "app", FrameKind::Native, "Go"),
            ("rust", None, "app", FrameKind::Native, "Rust"),
            ("kernel", None, "vmlinux", FrameKind::Kernel, "kernel"),
            ("cpython", None, "", FrameKind::Runtime, "Python"),
            ("jvm", Some(Jit), "", FrameKind::Jit, "Java"),
            ("jvm", Some(Interpreted), "", FrameKind::Interpreted, "Java"),
            ("dotnet", Some(Aot), "a.dll", FrameKind::Native, ".NET"),
            // A type of another profiler.
            ("wasm", None, "", FrameKind::Runtime, ""),
            // Only runtimes choose.
            ("native", Some(Jit), "app", FrameKind::Native, "native"),
        ] {
            assert_eq!(
                FrameKind::of(frame_type, execution, binary),
                kind,
                "{frame_type}"
            );
            assert_eq!(
                Language::of_frame_type(frame_type).name(),
                language,
                "{frame_type}"
            );
        }
    }
}
