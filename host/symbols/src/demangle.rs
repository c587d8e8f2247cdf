//! Demangles symbol names.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

/// A short name can expand to any length, because it can repeat parts by reference.
const MAX_NAME: usize = 4 << 10;

/// How much of a name to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// C++ with parameters and return type; Rust with hashes and the disambiguators of crates.
    Full,
    /// C++ without parameters and return type, Rust without hashes and disambiguators. Template and generic arguments are
    /// kept.
    Short,
}

/// `None` if the name is not mangled, or in an unknown scheme.
pub fn demangle(name: &str, style: Style) -> Option<String> {
    rust(name, style).or_else(|| cpp(name, style))
}

/// Splits off the suffix that compilers append for a part of a function.
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
    // The crate leaves this for an empty pack after other arguments.
    text.0 = text.0.replace(", >", ">");
    if style == Style::Short {
        // The crate writes this for lambdas even without parameters.
        let len = text.0.trim_end_matches(" const").len();
        text.0.truncate(len);
    }
    if let Some(named) = thunk(&text.0) {
        text.0 = named;
    }
    if !suffix.is_empty() && style == Style::Full {
        write!(text, " ({suffix})").ok()?;
    }
    Some(text.0)
}

/// The crate writes `{virtual override thunk({offset(-8)}, name)}`; the usual demanglers write `non-virtual thunk to name`.
fn thunk(text: &str) -> Option<String> {
    let mut name = text
        .strip_prefix("{virtual override thunk(")?
        .strip_suffix(")}")?;
    let is_virtual = name.starts_with("{virtual offset(");
    let mut offsets = 0;
    while name.starts_with("{offset(") || name.starts_with("{virtual offset(") {
        name = name.split_once(")}, ")?.1;
        offsets += 1;
    }
    let kind = match offsets {
        1 if is_virtual => "virtual",
        1 => "non-virtual",
        _ => "covariant return",
    };
    Some(format!("{kind} thunk to {name}"))
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
    fn names_are_demangled_in_their_languages_syntax() {
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
        check(
            "_ZThn56_N4node6Parser12OnStreamReadEl",
            Some("non-virtual thunk to node::Parser::OnStreamRead(long)"),
            Some("non-virtual thunk to node::Parser::OnStreamRead"),
        );
        check(
            "_ZTv0_n24_N3FooD0Ev",
            Some("virtual thunk to Foo::~Foo()"),
            Some("virtual thunk to Foo::~Foo"),
        );
        check(
            "_ZTch0_h16_N1B1fEv",
            Some("covariant return thunk to B::f()"),
            Some("covariant return thunk to B::f"),
        );
        // Swift and D.
        check("$s4main3fooyyF", None, None);
        check("_D3std5stdio7writelnFZv", None, None);
        check("_Z", None, None);
    }

    #[test]
    fn short_names_keep_generic_and_template_arguments() {
        let check = |name: &str, short: &str| {
            let shown = demangle(name, Style::Short);
            assert_eq!(shown.as_deref(), Some(short), "{name}");
        };
        check("_RINvCs81nRMqtTsfS_3hot3sumhEB2_", "hot::sum::<u8>");
        check(
            "_RNvXCs81nRMqtTsfS_3hotINtNtCslNYArtu3iFV_5alloc3vec3VechENtB2_2Tr2goB2_",
            "<alloc::vec::Vec<u8> as hot::Tr>::go",
        );
        check(
            "_RNSNvYNCINvNtCsjrHSEGnQ3l9_3std2rt10lang_startuE0INtNtNtCsgEmfK2I1SDS_4core3ops\
             8function6FnOnceuE9call_once6vtableCs81nRMqtTsfS_3hot",
            "<std::rt::lang_start<()>::{closure#0} as core::ops::function::FnOnce<()>>\
             ::call_once::{shim:vtable#0}",
        );
        check(
            "_RNvMCs123_4testINtB2_3FooKj1f_E3bar",
            "<test::Foo<31>>::bar",
        );
        check(
            "_ZN52_$LT$alloc..vec..Vec$LT$T$GT$$u20$as$u20$hot..Tr$GT$2go17h893f16708e256621E",
            "<alloc::vec::Vec<T> as hot::Tr>::go",
        );
        check("_Z3useIPFiicEEiT_", "use<int (*)(int, char)>");
        check(
            "_Z3useISt8functionIFviEEEiT_",
            "use<std::function<void (int)> >",
        );
        check("_ZN4llvm4packIJicEEEiDpT_", "llvm::pack<int, char>");
    }

    #[test]
    fn empty_packs_and_qualifiers_of_lambdas_are_removed() {
        let check = |name: &str, full: &str, short: &str| {
            assert_eq!(demangle(name, Style::Full).as_deref(), Some(full), "{name}");
            assert_eq!(
                demangle(name, Style::Short).as_deref(),
                Some(short),
                "{name}"
            );
        };
        check(
            "_ZN4llvm2AMINS_8FunctionEJEE3getEv",
            "llvm::AM<llvm::Function>::get()",
            "llvm::AM<llvm::Function>::get",
        );
        check(
            "_ZN4llvm4packIJEEEiDpT_",
            "int llvm::pack<>()",
            "llvm::pack<>",
        );
        check(
            "_ZZ4mainENKUlT_E0_clIiEEDaS_",
            "auto main::{lambda(auto:1)#2}::operator()<int>(int) const",
            "main::{lambda(auto:1)#2}::operator()<int>",
        );
    }

    #[test]
    fn exponential_names_are_bounded() {
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

    fn to_base_36(number: u32) -> String {
        let digit = |number| char::from_digit(number, 36).unwrap().to_ascii_uppercase();
        match number {
            0..36 => digit(number).to_string(),
            _ => format!("{}{}", digit(number / 36), digit(number % 36)),
        }
    }
}
