//! Apple's own code writes names of Swift as we do, as far as it writes them; and whatever a name is, ours ends.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test tells what it compared, and its failures are panics"
)]

mod names;

use profcol_symbols::{Style, demangle};
use symbolic_common::{Language, Name, NameMangling};
use symbolic_demangle::{Demangle, DemangleOptions};

use self::names::Names;

const NAMES: usize = 200_000;
/// Theirs are cut off at 4096, and so are ours.
const MAX_NAME: usize = 4 << 10;

/// Names of functions, types and what the compiler makes of them.
const OWN: &str = include_str!("own.txt");

fn theirs(name: &str, options: DemangleOptions) -> Option<String> {
    let text = Name::new(name, NameMangling::Mangled, Language::Swift).demangle(options)?;
    (text != name).then_some(text)
}

fn own() -> impl Iterator<Item = String> {
    let lines = OWN.lines().filter(|it| !it.starts_with('#'));
    lines.map(str::to_owned)
}

fn made() -> impl Iterator<Item = String> {
    (0..NAMES as u64).map(|seed| Names::new(seed).name())
}

/// Of what is no name they write the pieces, one behind the other, where we leave it; seldom it is the other way round.
const MAX_REFUSED: usize = NAMES / 500;

#[test]
fn full_names_are_those_of_swift() {
    let mut different = Vec::new();
    let (mut written, mut refused) = (0, 0);
    for (is_made, name) in both() {
        let theirs = theirs(&name, DemangleOptions::complete());
        let ours = demangle(&name, Style::Full);
        written += usize::from(ours.is_some());
        let is_too_long = theirs
            .as_ref()
            .or(ours.as_ref())
            .is_some_and(|it| it.len() >= MAX_NAME);
        if ours == theirs || is_too_long {
            continue;
        }
        if is_made && (ours.is_none() || theirs.is_none()) {
            refused += 1;
            continue;
        }
        different.push(format!("{name}\n  theirs {theirs:?}\n  ours   {ours:?}"));
    }
    let count = different.len();
    println!(
        "{written} names are written, {count} of them differ; {refused} are written by one alone"
    );
    different.truncate(20);
    assert!(written > NAMES / 4);
    assert!(refused <= MAX_REFUSED);
    assert!(
        different.is_empty(),
        "{count} differ:\n{}",
        different.join("\n")
    );
}

/// Theirs leave out the labels of parameters, and what functions that are types take and return.
#[test]
fn short_names_are_those_of_swift_with_labels() {
    let mut different = Vec::new();
    let mut written = 0;
    for (_, name) in both() {
        let (Some(theirs), Some(ours)) = (
            theirs(&name, DemangleOptions::name_only()),
            demangle(&name, Style::Short),
        ) else {
            continue;
        };
        // Of types of functions theirs show the half; `as` is only in debug information.
        let odd = ["->", "@", "nonisolated", " as "];
        let is_odd = odd
            .iter()
            .any(|it| ours.contains(it) || theirs.contains(it));
        if is_odd {
            continue;
        }
        written += 1;
        if without_labels(&ours) != without_labels(&theirs) {
            different.push(format!("{name}\n  theirs {theirs}\n  ours   {ours}"));
        }
    }
    let count = different.len();
    println!("{written} short names are compared; {count} differ");
    different.truncate(20);
    assert!(written > NAMES / 8);
    assert!(
        different.is_empty(),
        "{count} differ:\n{}",
        different.join("\n")
    );
}

fn both() -> impl Iterator<Item = (bool, String)> {
    let own = own().map(|name| (false, name));
    own.chain(made().map(|name| (true, name)))
}

/// Without `(_:label:)`, and without what theirs leave for it or in front of a module, which has no name there.
fn without_labels(name: &str) -> String {
    let mut text = String::new();
    let mut rest = name;
    while let Some((before, behind)) = rest.split_once('(') {
        text += before;
        let inner = behind.split_once(')').filter(|(inner, _)| {
            inner.is_empty() || inner.ends_with(':') && !inner.contains([' ', '('])
        });
        rest = match inner {
            Some((_, behind)) => behind,
            None => {
                text.push('(');
                behind
            }
        };
    }
    text += rest;
    let words = text.split_whitespace();
    words.filter(|it| !matches!(*it, "in" | "of")).collect()
}

/// Where a byte is another, is missing or is there twice.
#[test]
fn damaged_names_end() {
    let mut seed = 1u64;
    let mut below = |limit: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % limit
    };
    for (_, name) in both() {
        let mut bytes = name.into_bytes();
        for _ in 0..=below(2) {
            let at = 2 + below(bytes.len() - 2);
            match below(4) {
                0 => bytes[at] = b' ' + below(95) as u8,
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, bytes[at]),
                _ => {
                    let part = bytes[at..].to_vec();
                    bytes.extend(part);
                }
            }
        }
        let name = String::from_utf8(bytes).unwrap();
        for style in [Style::Full, Style::Short] {
            assert!(demangle(&name, style).is_none_or(|it| it.len() <= MAX_NAME));
        }
    }
}

#[test]
fn names_that_are_bombs_end() {
    let deep = |open: &str, close: &str| {
        format!(
            "$s4main1fyy{}Si{}F",
            open.repeat(20_000),
            close.repeat(20_000)
        )
    };
    let mut doubling = "$s4main1fyySi_Sit".to_owned();
    for letter in b'A'..=b'Z' {
        let letter = char::from(letter.to_ascii_lowercase());
        doubling += &format!("A{letter}{}_Say{letter}Gt", letter.to_ascii_uppercase());
    }
    let nested = (0..2000).fold("3foo".to_owned(), |name, _| format!("{}{name}", name.len()));
    let bombs = [
        deep("", "m"),
        deep("Say", "G"),
        deep("", "Sg"),
        deep("y", "c"),
        deep("", "_t"),
        doubling + "F",
        format!("$s4main3FooC{}F", "A2047a".repeat(10_000)),
        format!("$s4main1fy{}lF", "xRzz".repeat(20_000)),
        format!("$s4main1fyyxlFr{}l", "99999999_".repeat(5000)),
        format!("$s4main1fyyF{nested}Tf3pf_n"),
        format!("$s{}", "4main3FooC3barV".repeat(5000)),
        format!("$s3Foo{}", "3BarC".repeat(20_000)),
        format!("$s3FooC3BarVy{}G", "_".repeat(20_000)),
        "$s4294967295foo".to_owned(),
        "$s00429496729foo".to_owned(),
    ];
    for name in bombs {
        for style in [Style::Full, Style::Short] {
            assert!(demangle(&name, style).is_none_or(|it| it.len() <= MAX_NAME));
        }
    }
}
