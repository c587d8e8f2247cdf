//! What is supported of each runtime, for the table in the documentation.

use crate::{Runtime, beam, dotnet, hotspot, perl, php, python, ruby, v8};

/// A row of the table.
pub struct Support {
    pub runtime: Runtime,
    pub implementation: &'static str,
    /// The versions that the detection accepts, and where.
    pub versions: String,
    pub tested: &'static str,
    pub names: &'static str,
    pub lines: &'static str,
    /// Functions that a compiler inlined; empty if it inlines none.
    pub inlined: &'static str,
    pub unsupported: &'static str,
}

impl Support {
    /// Every runtime that is supported.
    pub fn all() -> Vec<Self> {
        Runtime::ALL.into_iter().map(Self::of).collect()
    }

    fn of(runtime: Runtime) -> Self {
        match runtime {
            Runtime::Python => Self {
                runtime,
                implementation: "CPython",
                versions: range(&python::versions()),
                tested: "3.8 to 3.14, free-threaded 3.13 and 3.14; on aarch64 with 3.11",
                names: "qualified since 3.11",
                lines: "yes",
                inlined: "",
                unsupported: "its own JIT, suspended coroutines that await; builds with tail calls are not tested",
            },
            Runtime::V8 => Self {
                runtime,
                implementation: "V8 of Node.js",
                versions: format!("Node.js 16 to 26 (V8 {})", range(&v8::versions())),
                tested: "16, 18, 20, 22, 24, 25 and 26; on aarch64 with 18 and 22",
                names: "V8's, including builtins",
                lines: "yes, for bytecode, baseline and optimized code",
                inlined: "yes",
                unsupported: "Electron and Deno (compressed pointers, no constants for debuggers); functions of WebAssembly (one frame `[wasm]`), callers that await",
            },
            Runtime::Java => Self {
                runtime,
                implementation: "HotSpot",
                versions: format!("JDK {} to {}, x86-64", hotspot::OLDEST, hotspot::NEWEST),
                tested: "8, 11, 17, 21 and 25",
                names: "class and method",
                lines: "yes, for interpreted and compiled code",
                inlined: "yes",
                unsupported: "aarch64, OpenJ9, GraalVM native images (native code), frames of parked virtual threads, which are on the heap",
            },
            Runtime::DotNet => Self {
                runtime,
                implementation: ".NET (CoreCLR)",
                versions: format!("{}, x86-64", list(&dotnet::versions())),
                tested: "8.0.30, 9.0.11 and 10.0.11",
                names: "as in .NET's stack traces, with namespace and type: `Shop.Order.Total`",
                lines: "yes, of assemblies with a portable PDB, embedded or next to the program",
                inlined: "no",
                unsupported: "aarch64, .NET Framework and Mono, type arguments of generic methods",
            },
            Runtime::Ruby => Self {
                runtime,
                implementation: "Ruby (MRI)",
                versions: format!("{}, x86-64", range(&ruby::versions())),
                tested: "2.7, 3.1, 3.3 and 3.4",
                names: "Ruby's labels, with the class (3.2: without)",
                lines: "yes; in generated code the line of the last call",
                inlined: "",
                unsupported: "aarch64, TruffleRuby and JRuby, names of methods in C (their native frames stay), methods in anonymous classes",
            },
            Runtime::Php => Self {
                runtime,
                implementation: "PHP",
                versions: range(&php::versions()),
                tested: "7.4, 8.2, 8.4 and 8.5, with and without the JIT compiler (since 8.0)",
                names: "as in PHP's stack traces, with the class; also functions in C",
                lines: "yes",
                inlined: "",
                unsupported: "code of its JIT compiler on aarch64, builds with threads (ZTS), a generator suspended in `yield from`",
            },
            Runtime::Perl => Self {
                runtime,
                implementation: "Perl",
                versions: format!("{}, x86-64", range(&perl::versions())),
                tested: "5.32, 5.36, 5.40, 5.42, and 5.40 without threads",
                names: "as in Perl's `caller`, with the package",
                lines: "yes, of the statement",
                inlined: "",
                unsupported: "aarch64; with threads but before 5.36 musl",
            },
            Runtime::LuaJit => Self {
                runtime,
                implementation: "LuaJIT",
                versions: "2.1 with 64-bit references (GC64), x86-64".to_owned(),
                tested: "Debian's of 2022, and those of January and October 2025",
                names: "the name that the caller uses, as in Lua's stack traces; else its file and first line",
                lines: "yes; none for the function that entered compiled code",
                inlined: "no",
                unsupported: "aarch64, builds without GC64 (before 2022 the default), names of functions in C (their native frames stay)",
            },
            Runtime::Beam => Self {
                runtime,
                implementation: "BEAM",
                versions: format!("Erlang/OTP {}, x86-64", list(&beam::Layout::releases())),
                tested: "25 and 27",
                names: "`lists:map/2`, `Enum.map/2`",
                lines: "yes, of the last call",
                inlined: "",
                unsupported: "aarch64, other releases (OTP 29 exports none of its state), the emulator without JIT compiler, callers of native functions on dirty schedulers",
            },
        }
    }
}

/// `3.8 to 3.14`
fn range(versions: &[String]) -> String {
    match versions {
        [first, .., last] => format!("{first} to {last}"),
        [only] => only.clone(),
        [] => String::new(),
    }
}

/// `8, 9 and 10`
fn list(versions: &[String]) -> String {
    match versions {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => versions.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_that_the_detection_accepts() {
        let versions: Vec<String> = Support::all().into_iter().map(|it| it.versions).collect();
        let expected = [
            "3.8 to 3.14",
            "Node.js 16 to 26 (V8 9.4 to 14.6)",
            "JDK 8 to 25, x86-64",
            "2.7 to 4.0, x86-64",
            "7.4 to 8.5",
            "5.28 to 5.42, x86-64",
            "2.1 with 64-bit references (GC64), x86-64",
            "Erlang/OTP 25 and 27, x86-64",
            "8, 9 and 10, x86-64",
        ];
        assert_eq!(versions, expected);
    }
}
