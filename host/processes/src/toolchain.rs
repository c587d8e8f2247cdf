//! The toolchain of an executable, from the marks of compilers.

/// Compiler marks in `.comment` and our names, in order of precedence: a Rust program contains C code, too.
const COMPILERS: &[(&str, &str)] = &[
    ("rustc version ", "Rust"),
    ("GHC ", "GHC"),
    ("zig ", "Zig"),
    ("clang version ", "Clang"),
    ("GCC: ", "GCC"),
];

/// Language runtimes with executables of their own, by name prefix.
const RUNTIMES: &[(&str, &str)] = &[
    ("python", "cpython"),
    ("pypy", "pypy"),
    ("node", "nodejs"),
    ("java", "jvm"),
    ("ruby", "ruby"),
    ("perl", "perl"),
    ("php", "php"),
    ("dotnet", "dotnet"),
    ("beam.smp", "erlang"),
    ("luajit", "luajit"),
    ("deno", "deno"),
    ("bun", "bun"),
];

/// Longer strings than any compiler writes are treated as damage.
const MAX_LENGTH: usize = 128;

/// The compiler and its version from the strings in `.comment`.
pub fn compiler(comment: &[u8]) -> Option<String> {
    let texts = || {
        let texts = comment.split(|&byte| byte == 0);
        texts.filter_map(|text| std::str::from_utf8(text).ok())
    };
    COMPILERS.iter().find_map(|(mark, name)| {
        let (_, rest) = texts().find_map(|text| text.split_once(mark))?;
        let version = match *name {
            // Skip the distribution's package version.
            "GCC" => rest
                .split_once(") ")
                .and_then(|(_, rest)| rest.split(' ').next()),
            _ => rest.split(' ').next(),
        };
        Some(named(name, version.filter(|version| is_version(version))))
    })
}

/// From Go's build information in the section `.go.buildinfo`.
pub fn go(build_info: &[u8]) -> Option<String> {
    const INLINE: u8 = 2;
    let rest = build_info.strip_prefix(b"\xff Go buildinf:")?;
    let flags = *rest.get(1)?;
    if flags & INLINE == 0 {
        return Some(named("Go", None));
    }
    let text = build_info.get(32..)?;
    let (&length, text) = text.split_first()?;
    // A single-byte length: versions are short.
    let version = text.get(..usize::from(length)).filter(|_| length < 0x80)?;
    let version = std::str::from_utf8(version).ok()?.strip_prefix("go")?;
    let version = version.split(' ').next();
    Some(named("Go", version.filter(|version| is_version(version))))
}

/// The language runtime with an executable of this name.
pub fn runtime(name: &str) -> Option<&'static str> {
    let is_rest_of_version = |rest: &str| {
        rest.bytes()
            .all(|it| it.is_ascii_digit() || b".-m".contains(&it))
    };
    let entry = RUNTIMES
        .iter()
        .find(|(begin, _)| name.strip_prefix(begin).is_some_and(is_rest_of_version));
    entry.map(|(_, runtime)| *runtime)
}

fn named(name: &str, version: Option<&str>) -> String {
    match version {
        Some(version) => format!("{name} {version}"),
        None => name.to_owned(),
    }
}

fn is_version(text: &str) -> bool {
    text.len() <= MAX_LENGTH && text.starts_with(|first: char| first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_main_compiler() {
        for (comment, expected) in [
            ("GCC: (Debian 12.2.0-14+deb12u1) 12.2.0\0", "GCC 12.2.0"),
            (
                "GCC: (GNU) 4.8.5 20150623 (Red Hat 4.8.5-44)\0",
                "GCC 4.8.5",
            ),
            (
                "GCC: (Alpine 13.2.1_git20231014) 13.2.1 20231014\0",
                "GCC 13.2.1",
            ),
            (
                "Debian clang version 14.0.6\0GCC: (Debian) 12.2.0\0",
                "Clang 14.0.6",
            ),
            (
                "GCC: (Debian) 12.2.0\0rustc version 1.95.0 (59807616e 2026-04-14)\0",
                "Rust 1.95.0",
            ),
            ("Linker: LLD 16.0.0\0GHC 9.2.1\0", "GHC 9.2.1"),
            ("clang version \0", "Clang"),
            ("something else\0", ""),
            ("", ""),
        ] {
            let compiler = compiler(comment.as_bytes());
            assert_eq!(compiler.unwrap_or_default(), expected, "{comment:?}");
        }
    }

    #[test]
    fn reads_go_build_info() {
        let inline = |version: &str| {
            let mut record = b"\xff Go buildinf:\x08\x02".to_vec();
            record.resize(32, 0);
            record.push(version.len() as u8);
            record.extend_from_slice(version.as_bytes());
            record
        };
        for (record, expected) in [
            (inline("go1.26.8"), "Go 1.26.8"),
            (inline("go1.26.8 X:nocoverageredesign"), "Go 1.26.8"),
            (inline("devel"), ""),
            (b"\xff Go buildinf:\x08\x00".to_vec(), "Go"),
            (b"\xff Go buildinf:".to_vec(), ""),
            (inline("go1.26.8")[..36].to_vec(), ""),
            (Vec::new(), ""),
        ] {
            assert_eq!(go(&record).unwrap_or_default(), expected, "{record:?}");
        }
    }

    #[test]
    fn recognizes_runtimes_by_executable_name() {
        for (name, expected) in [
            ("python3.11", "cpython"),
            ("node", "nodejs"),
            ("java", "jvm"),
            ("javac-wrapper", ""),
            ("nodeos", ""),
            ("bash", ""),
        ] {
            assert_eq!(runtime(name).unwrap_or_default(), expected, "{name}");
        }
    }
}
