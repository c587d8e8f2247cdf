//! Names as their language writes them, from those that linkers see.

mod d;
mod swift;

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

/// A short name may stand for one of any length: parts of it are repeated by reference.
const MAX_NAME: usize = 4 << 10;

/// How much of a name is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// C++ and D with parameters, C++ with the return type; Rust with the hash; Swift with types and modules.
    Full,
    /// C++, D and Swift without these, Swift with the labels of parameters; Rust without the hash.
    Short,
}

/// `None` where the name is not mangled, or in a way that is not known here.
pub fn demangle(name: &str, style: Style) -> Option<String> {
    rust(name, style)
        .or_else(|| cpp(name, style))
        .or_else(|| d(name, style))
        .or_else(|| swift::demangle(name, style))
}

fn d(name: &str, style: Style) -> Option<String> {
    let (mangled, suffix) = parts(name);
    let mut text = d::demangle(mangled, style == Style::Full)?;
    if !suffix.is_empty() && style == Style::Full {
        write!(text, " ({suffix})").ok()?;
    }
    Some(text)
}

/// The name, and what compilers put behind that of a part of a function.
fn parts(name: &str) -> (&str, &str) {
    match name.find('.') {
        Some(dot) => name.split_at(dot),
        None => (name, ""),
    }
}

fn rust(name: &str, style: Style) -> Option<String> {
    let demangled = rustc_demangle::try_demangle(name).ok()?;
    let mut text = Bounded::default();
    let written = match style {
        Style::Full => write!(text, "{demangled}"),
        Style::Short => write!(text, "{demangled:#}"),
    };
    written.ok().map(|()| text.0)
}

fn cpp(name: &str, style: Style) -> Option<String> {
    let (mangled, suffix) = parts(name);
    if !["_Z", "__Z", "___Z"]
        .iter()
        .any(|start| mangled.starts_with(start))
    {
        return None;
    }
    let options = ParseOptions::default().recursion_limit(128);
    let symbol = Symbol::new_with_options(mangled, &options).ok()?;
    let mut options = DemangleOptions::default().recursion_limit(192);
    if style == Style::Short {
        options = options.no_params().no_return_type();
    }
    let mut text = Bounded::default();
    symbol.structured_demangle(&mut text, &options).ok()?;
    if !suffix.is_empty() && style == Style::Full {
        write!(text, " ({suffix})").ok()?;
    }
    Some(text.0)
}

#[derive(Default)]
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_NAME {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_as_in_their_language() {
        let check = |name: &str, full: Option<&str>, short: Option<&str>| {
            assert_eq!(demangle(name, Style::Full).as_deref(), full, "{name}");
            assert_eq!(demangle(name, Style::Short).as_deref(), short, "{name}");
        };
        check("main", None, None);
        check("_start", None, None);
        check(
            "_ZNSt6vectorIiSaIiEE9push_backERKi",
            Some("std::vector<int, std::allocator<int> >::push_back(int const&)"),
            Some("std::vector<int, std::allocator<int> >::push_back"),
        );
        check("_Z3fooi.cold", Some("foo(int) (.cold)"), Some("foo"));
        check(
            "_ZN4core3fmt5write17h0123456789abcdefE",
            Some("core::fmt::write::h0123456789abcdef"),
            Some("core::fmt::write"),
        );
        check(
            "_RNvCs1234_7mycrate3foo",
            Some("mycrate[3c1c0]::foo"),
            Some("mycrate::foo"),
        );
        check("$s4main3fooyyF", Some("main.foo() -> ()"), Some("foo()"));
        check(
            "_$sSa6append10contentsOfyqd__n_t7ElementQyd__RszSTRd__lFSi_SaySiGTg5.cold",
            Some(
                "generic specialization <Swift.Int, Swift.Array<Swift.Int>> of Swift.Array.append\
                 <A where A == A1.Element, A1: Swift.Sequence>(contentsOf: __owned A1) -> () \
                 with unmangled suffix \".cold\"",
            ),
            Some("specialized Array.append<A>(contentsOf:)"),
        );
        check(
            "$s3app5ModelC4loadyyYaKFySSYbcfU_TY0_",
            Some(
                "(1) suspend resume partial function for closure #1 @Sendable (Swift.String) -> () \
                 in app.Model.load() async throws -> ()",
            ),
            Some("closure #1 in Model.load()"),
        );
        check("$s4main3fooyyFTJ", None, None);
        check("_Dmain", Some("D main"), Some("D main"));
        check(
            "_D3std3utf__T9toUTFImplTAywTAxaZQtFNaNbNfMQoZQv",
            Some(
                "std.utf.toUTFImpl!(immutable(dchar)[], const(char)[])\
                 .toUTFImpl(scope const(char)[])",
            ),
            Some("std.utf.toUTFImpl!(immutable(dchar)[], const(char)[]).toUTFImpl"),
        );
        check("_D3std5stdio6writef", None, None);
        check("_Dsomething", None, None);
        check("_Z", None, None);
    }

    #[test]
    fn a_name_that_doubles_with_each_letter_ends() {
        let mut name = "_Z1fSt4pairIiiE".to_owned();
        for depth in 0..60u32 {
            let last = match depth.checked_sub(1) {
                None => "S0_".to_owned(),
                Some(number) => format!("S{}_", to_base_36(number + 1)),
            };
            name += &format!("St4pairI{last}{last}E");
        }
        let shown = demangle(&name, Style::Full);
        assert!(shown.is_none_or(|name| name.len() <= MAX_NAME));
    }

    #[test]
    fn a_name_of_d_that_refers_to_itself_ends() {
        // Each type has two of the one before; and one that is its own part.
        let mut doubling = "_D1f__T1aTi".to_owned();
        for _ in 0..60 {
            doubling += "THQcQe";
        }
        let shown = demangle(&(doubling + "Z1bv"), Style::Full);
        assert!(shown.is_none_or(|name| name.len() <= MAX_NAME));
        for round in ["_D1fFAQbZv", "_DQbv", "_D1f__T1aTAQbZv", "_D1fPQbPQd"] {
            assert_eq!(demangle(round, Style::Full), None, "{round}");
        }
        assert_eq!(
            demangle(&format!("_D1f{}i", "A".repeat(100_000)), Style::Full),
            None
        );
    }

    fn to_base_36(number: u32) -> String {
        let digit = |number| char::from_digit(number, 36).unwrap().to_ascii_uppercase();
        match number {
            0..36 => digit(number).to_string(),
            _ => format!("{}{}", digit(number / 36), digit(number % 36)),
        }
    }
}
