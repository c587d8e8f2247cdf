//! Names of D, by the grammar of its ABI.
//!
//! Parts of a name may refer back to others, so that a short one can stand for one of any length or
//! for one without end: steps, depth and length are bounded. The text is that of GNU's tools.

use super::MAX_NAME;

/// Parts of a name, those behind references again; the longest of the standard library has 2,000.
const STEPS: u32 = 1 << 15;
/// Types in types.
const DEPTH: u32 = 96;

/// `None` where the name is not one of D.
pub fn demangle(name: &str, with_parameters: bool) -> Option<String> {
    if name == "_Dmain" {
        return Some("D main".to_owned());
    }
    let mut parser = Parser {
        name,
        at: 0,
        steps: STEPS,
        depth: DEPTH,
    };
    let mut text = String::new();
    parser.mangled(&mut text, with_parameters)?;
    (parser.at == name.len()).then_some(text)
}

struct Parser<'n> {
    name: &'n str,
    at: usize,
    /// What may still be read.
    steps: u32,
    depth: u32,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.peek_at(self.at)
    }

    fn peek_at(&self, at: usize) -> Option<u8> {
        self.name.as_bytes().get(at).copied()
    }

    fn rest(&self) -> &str {
        self.name.get(self.at..).unwrap_or_default()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn take(&mut self, text: &str) -> bool {
        let is_there = self.rest().starts_with(text);
        self.at += if is_there { text.len() } else { 0 };
        is_there
    }

    fn step(&mut self, out: &str) -> Option<()> {
        self.steps = self.steps.checked_sub(1)?;
        (out.len() <= MAX_NAME).then_some(())
    }

    fn nested(&mut self, part: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        self.depth = self.depth.checked_sub(1)?;
        part(self)?;
        self.depth += 1;
        Some(())
    }

    /// Reads what stands further in front, where a `Q` and a distance say.
    fn referred(&mut self, part: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        let target = self.target(self.at)?;
        let after = self.at + 1 + self.distance(self.at)?.1;
        self.at = target;
        self.nested(part)?;
        self.at = after;
        Some(())
    }

    fn target(&self, at: usize) -> Option<usize> {
        let (distance, _) = self.distance(at)?;
        at.checked_sub(distance).filter(|_| distance > 0)
    }

    /// Behind a `Q`: a number whose last digit is a small letter, and how many digits it has.
    fn distance(&self, at: usize) -> Option<(usize, usize)> {
        let mut number = 0usize;
        for digits in 1.. {
            let byte = self.peek_at(at + digits)?;
            let digit = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a',
                _ => return None,
            };
            number = number.checked_mul(26)?.checked_add(digit.into())?;
            if byte.is_ascii_lowercase() {
                return Some((number, digits));
            }
        }
        None
    }

    fn number(&mut self) -> Option<usize> {
        let rest = self.rest();
        let end = rest.find(|it: char| !it.is_ascii_digit());
        let digits = rest.get(..end.unwrap_or(rest.len()))?;
        let number = digits.parse().ok()?;
        self.at += digits.len();
        Some(number)
    }

    fn mangled(&mut self, out: &mut String, with_parameters: bool) -> Option<()> {
        if !self.take("_D") {
            return None;
        }
        self.qualified(out, with_parameters, true)?;
        if !self.take("Z") {
            // Of what type it is.
            self.kind(&mut String::new())?;
        }
        Some(())
    }

    fn is_name(&self) -> bool {
        match self.peek() {
            Some(b'0'..=b'9') => true,
            Some(b'_') => self.rest().starts_with("__T") || self.rest().starts_with("__U"),
            Some(b'Q') => {
                let target = self.target(self.at).and_then(|it| self.peek_at(it));
                target.is_some_and(|it| it.is_ascii_digit())
            }
            _ => false,
        }
    }

    fn is_function(&self) -> bool {
        matches!(self.peek(), Some(b'F' | b'U' | b'W' | b'V' | b'R' | b'Y'))
    }

    fn qualified(
        &mut self,
        out: &mut String,
        with_parameters: bool,
        with_modifiers: bool,
    ) -> Option<()> {
        let start = out.len();
        loop {
            self.step(out)?;
            // Those without a name.
            while self.take("0") {}
            if out.len() > start {
                out.push('.');
            }
            self.identifier(out, start)?;
            if self.peek() == Some(b'M') || self.is_function() {
                let (before, length) = (self.at, out.len());
                let mut modifiers = String::new();
                if self.take("M") {
                    self.modifiers(&mut modifiers);
                }
                let mut parameters = String::new();
                let read = self.function(&mut parameters, &mut String::new(), &mut String::new());
                if read.is_none() && self.steps == 0 {
                    return None;
                }
                if read.is_none() || self.at == self.name.len() {
                    // It is the type of what is named.
                    self.at = before;
                    out.truncate(length);
                } else if with_parameters {
                    out.push_str(&parameters);
                    if with_modifiers {
                        out.push_str(&modifiers);
                    }
                }
            }
            if !self.is_name() {
                return Some(());
            }
        }
    }

    /// `start` is where the name in which it stands begins.
    fn identifier(&mut self, out: &mut String, start: usize) -> Option<()> {
        self.step(out)?;
        if self.peek() == Some(b'Q') {
            return self.referred(|it| it.plain(out, start));
        }
        if self.rest().starts_with("__T") || self.rest().starts_with("__U") {
            return self.template(out);
        }
        self.plain(out, start)
    }

    /// Behind its length.
    fn plain(&mut self, out: &mut String, start: usize) -> Option<()> {
        let length = self.number().filter(|&length| length > 0)?;
        let name = self.rest().get(..length)?;
        if name.starts_with("__T") || name.starts_with("__U") {
            let end = self.at + length;
            self.template(out)?;
            return (self.at == end).then_some(());
        }
        // A parent that only makes others unique.
        if let Some(number) = name.strip_prefix("__S")
            && !number.is_empty()
            && number.bytes().all(|it| it.is_ascii_digit())
        {
            self.at += length;
            return self.nested(|it| it.identifier(out, start));
        }
        let name = name.to_owned();
        self.at += length;
        let is_last = self.peek() == Some(b'Z');
        let about = match name.as_str() {
            "__init" => "initializer for ",
            "__vtbl" => "vtable for ",
            "__Class" => "ClassInfo for ",
            "__Interface" => "Interface for ",
            "__ModuleInfo" => "ModuleInfo for ",
            _ => "",
        };
        match name.as_str() {
            _ if is_last && !about.is_empty() => {
                out.insert_str(start, about);
                if out.ends_with('.') {
                    out.pop();
                }
            }
            "__ctor" => out.push_str("this"),
            "__dtor" => out.push_str("~this"),
            "__postblit" if self.take("MFZ") => out.push_str("this(this)"),
            _ => out.push_str(&name),
        }
        Some(())
    }

    fn template(&mut self, out: &mut String) -> Option<()> {
        self.at += "__T".len();
        if !self.is_name() || self.peek() == Some(b'0') {
            return None;
        }
        let start = out.len();
        self.nested(|it| {
            it.identifier(out, start)?;
            out.push_str("!(");
            for number in 0.. {
                it.step(out)?;
                if it.take("Z") {
                    break;
                }
                if number > 0 {
                    out.push_str(", ");
                }
                // It is specialised.
                it.take("H");
                it.argument(out)?;
            }
            out.push(')');
            Some(())
        })
    }

    fn argument(&mut self, out: &mut String) -> Option<()> {
        match self.next()? {
            b'S' if self.rest().starts_with("_D") => self.mangled(out, true),
            b'S' => self.qualified(out, true, false),
            b'T' => self.kind(out),
            b'V' => {
                let first = match self.peek()? {
                    b'Q' => self.peek_at(self.target(self.at)?)?,
                    first => first,
                };
                let mut kind = String::new();
                self.kind(&mut kind)?;
                self.value(out, &kind, first)
            }
            b'X' => {
                let length = self.number()?;
                let text = self.rest().get(..length)?;
                out.push_str(text);
                self.at += length;
                Some(())
            }
            _ => None,
        }
    }

    /// What a function is said to be behind its parameters.
    fn modifiers(&mut self, out: &mut String) {
        loop {
            let (modifier, is_last) = match self.peek() {
                Some(b'x') => (" const", true),
                Some(b'y') => (" immutable", true),
                Some(b'O') => (" shared", false),
                Some(b'N') if self.rest().starts_with("Ng") => (" inout", false),
                _ => return,
            };
            self.at += if modifier == " inout" { 2 } else { 1 };
            out.push_str(modifier);
            if is_last {
                return;
            }
        }
    }

    /// A function but for what it returns.
    fn function(
        &mut self,
        parameters: &mut String,
        convention: &mut String,
        attributes: &mut String,
    ) -> Option<()> {
        convention.push_str(match self.next()? {
            b'F' => "",
            b'U' => "extern(C) ",
            b'W' => "extern(Windows) ",
            b'V' => "extern(Pascal) ",
            b'R' => "extern(C++) ",
            b'Y' => "extern(Objective-C) ",
            _ => return None,
        });
        while self.peek() == Some(b'N') {
            attributes.push_str(match self.peek_at(self.at + 1)? {
                b'a' => "pure ",
                b'b' => "nothrow ",
                b'c' => "ref ",
                b'd' => "@property ",
                b'e' => "@trusted ",
                b'f' => "@safe ",
                b'i' => "@nogc ",
                b'j' => "return ",
                b'l' => "scope ",
                b'm' => "@live ",
                // Of the first parameter.
                b'g' | b'h' | b'k' | b'n' => break,
                _ => return None,
            });
            self.at += 2;
        }
        parameters.push('(');
        for number in 0.. {
            self.step(parameters)?;
            match self.peek()? {
                b'Z' => break,
                b'X' => {
                    parameters.push_str("...");
                    break;
                }
                b'Y' => {
                    parameters.push_str(if number > 0 { ", ..." } else { "..." });
                    break;
                }
                _ => {}
            }
            if number > 0 {
                parameters.push_str(", ");
            }
            self.parameter(parameters)?;
        }
        self.at += 1;
        parameters.push(')');
        Some(())
    }

    fn parameter(&mut self, out: &mut String) -> Option<()> {
        if self.take("M") {
            out.push_str("scope ");
        }
        if self.take("Nk") {
            out.push_str("return ");
        }
        match self.peek() {
            Some(b'I') => {
                self.at += 1;
                out.push_str("in ");
                if self.take("K") {
                    out.push_str("ref ");
                }
            }
            Some(b'J') => {
                self.at += 1;
                out.push_str("out ");
            }
            Some(b'K') => {
                self.at += 1;
                out.push_str("ref ");
            }
            Some(b'L') => {
                self.at += 1;
                out.push_str("lazy ");
            }
            _ => {}
        }
        self.kind(out)
    }

    /// A type.
    fn kind(&mut self, out: &mut String) -> Option<()> {
        self.step(out)?;
        self.nested(|it| it.kind_here(out))
    }

    fn kind_here(&mut self, out: &mut String) -> Option<()> {
        let start = self.at;
        let mut around = |it: &mut Self, before: &str| {
            out.push_str(before);
            it.kind(out)?;
            out.push(')');
            Some(())
        };
        match self.next()? {
            b'O' => around(self, "shared("),
            b'x' => around(self, "const("),
            b'y' => around(self, "immutable("),
            b'N' => match self.next()? {
                b'g' => around(self, "inout("),
                b'h' => around(self, "__vector("),
                b'n' => {
                    out.push_str("typeof(*null)");
                    Some(())
                }
                _ => None,
            },
            b'A' => {
                self.kind(out)?;
                out.push_str("[]");
                Some(())
            }
            b'G' => {
                let from = self.at;
                self.number()?;
                let length = self.name.get(from..self.at)?.to_owned();
                self.kind(out)?;
                out.push('[');
                out.push_str(&length);
                out.push(']');
                Some(())
            }
            b'H' => {
                let mut key = String::new();
                self.kind(&mut key)?;
                self.kind(out)?;
                out.push('[');
                out.push_str(&key);
                out.push(']');
                Some(())
            }
            b'P' if !self.is_function() => {
                self.kind(out)?;
                out.push('*');
                Some(())
            }
            b'P' => self.function_type(out, "function"),
            b'F' | b'U' | b'W' | b'V' | b'R' | b'Y' => {
                self.at = start;
                self.function_type(out, "function")
            }
            b'D' => {
                let mut modifiers = String::new();
                self.modifiers(&mut modifiers);
                if self.peek() == Some(b'Q') {
                    self.referred(|it| it.function_type(out, "delegate"))?;
                } else {
                    self.function_type(out, "delegate")?;
                }
                out.push_str(&modifiers);
                Some(())
            }
            b'I' | b'C' | b'S' | b'E' | b'T' => self.qualified(out, true, false),
            b'B' => {
                let count = self.number()?;
                out.push_str("Tuple!(");
                for number in 0..count {
                    if number > 0 {
                        out.push_str(", ");
                    }
                    self.kind(out)?;
                }
                out.push(')');
                Some(())
            }
            b'Q' => {
                self.at = start;
                self.referred(|it| it.kind(out))
            }
            b'z' => {
                out.push_str(match self.next()? {
                    b'i' => "cent",
                    b'k' => "ucent",
                    _ => return None,
                });
                Some(())
            }
            basic => {
                out.push_str(basic_type(basic)?);
                Some(())
            }
        }
    }

    fn function_type(&mut self, out: &mut String, what: &str) -> Option<()> {
        let (mut parameters, mut attributes) = (String::new(), String::new());
        self.function(&mut parameters, out, &mut attributes)?;
        self.kind(out)?;
        out.push_str(&parameters);
        out.push(' ');
        out.push_str(&attributes);
        out.push_str(what);
        Some(())
    }

    /// A value of the type with this name, which begins so.
    fn value(&mut self, out: &mut String, kind: &str, first: u8) -> Option<()> {
        self.step(out)?;
        self.nested(|it| it.value_here(out, kind, first))
    }

    fn value_here(&mut self, out: &mut String, kind: &str, first: u8) -> Option<()> {
        match self.peek()? {
            b'n' => {
                self.at += 1;
                out.push_str("null");
                Some(())
            }
            b'N' => {
                self.at += 1;
                out.push('-');
                self.integer(out, first)
            }
            b'i' => {
                self.at += 1;
                self.integer(out, first)
            }
            b'0'..=b'9' => self.integer(out, first),
            b'e' => {
                self.at += 1;
                self.real(out)
            }
            b'c' => {
                self.at += 1;
                self.real(out)?;
                out.push('+');
                self.take("c").then_some(())?;
                self.real(out)?;
                out.push('i');
                Some(())
            }
            b'a' | b'w' | b'd' => self.string(out),
            b'A' => {
                self.at += 1;
                let is_map = first == b'H';
                out.push('[');
                for number in 0..self.number()? {
                    if number > 0 {
                        out.push_str(", ");
                    }
                    self.value(out, "", 0)?;
                    if is_map {
                        out.push(':');
                        self.value(out, "", 0)?;
                    }
                }
                out.push(']');
                Some(())
            }
            b'S' => {
                self.at += 1;
                out.push_str(kind);
                out.push('(');
                for number in 0..self.number()? {
                    if number > 0 {
                        out.push_str(", ");
                    }
                    self.value(out, "", 0)?;
                }
                out.push(')');
                Some(())
            }
            b'f' => {
                self.at += 1;
                self.mangled(out, true)
            }
            _ => None,
        }
    }

    fn integer(&mut self, out: &mut String, first: u8) -> Option<()> {
        let from = self.at;
        let number = self.number()?;
        match first {
            b'a' | b'u' | b'w' => {
                let byte = u8::try_from(number).ok();
                let shown = byte.filter(|it| (0x20..0x7f).contains(it));
                let text = match (shown, first) {
                    (Some(shown), _) => format!("'{}'", char::from(shown)),
                    (None, b'a') => format!("'\\x{number:02x}'"),
                    (None, b'u') => format!("'\\u{number:04x}'"),
                    (None, _) => format!("'\\U{number:08x}'"),
                };
                out.push_str(&text);
            }
            b'b' => out.push_str(if number > 0 { "true" } else { "false" }),
            _ => {
                let digits = self.name.get(from..self.at)?;
                out.push_str(digits);
                out.push_str(match first {
                    b'h' | b't' | b'k' => "u",
                    b'l' => "L",
                    b'm' => "uL",
                    _ => "",
                });
            }
        }
        Some(())
    }

    /// In hexadecimal digits, as the processor has it.
    fn real(&mut self, out: &mut String) -> Option<()> {
        for (written, meant) in [("NAN", "NaN"), ("INF", "Inf"), ("NINF", "-Inf")] {
            if self.take(written) {
                out.push_str(meant);
                return Some(());
            }
        }
        if self.take("N") {
            out.push('-');
        }
        let digit = char::from(self.next().filter(u8::is_ascii_hexdigit)?);
        out.push_str("0x");
        out.push(digit);
        out.push('.');
        while let Some(digit) = self.peek().filter(u8::is_ascii_hexdigit) {
            out.push(digit.into());
            self.at += 1;
        }
        self.take("P").then_some(())?;
        out.push('p');
        if self.take("N") {
            out.push('-');
        }
        while let Some(digit) = self.peek().filter(u8::is_ascii_digit) {
            out.push(digit.into());
            self.at += 1;
        }
        Some(())
    }

    fn string(&mut self, out: &mut String) -> Option<()> {
        let kind = self.next()?;
        let length = self.number()?;
        self.take("_").then_some(())?;
        out.push('"');
        for _ in 0..length {
            self.step(out)?;
            let digits = self.rest().get(..2)?;
            let byte = u8::from_str_radix(digits, 16).ok()?;
            match byte {
                b'\t' => out.push_str("\\t"),
                b'\n' => out.push_str("\\n"),
                b'\r' => out.push_str("\\r"),
                0x0c => out.push_str("\\f"),
                0x0b => out.push_str("\\v"),
                0x20..0x7f => out.push(byte.into()),
                _ => {
                    out.push_str("\\x");
                    out.push_str(digits);
                }
            }
            self.at += 2;
        }
        out.push('"');
        if kind != b'a' {
            out.push(kind.into());
        }
        Some(())
    }
}

fn basic_type(letter: u8) -> Option<&'static str> {
    Some(match letter {
        b'n' => "typeof(null)",
        b'v' => "void",
        b'g' => "byte",
        b'h' => "ubyte",
        b's' => "short",
        b't' => "ushort",
        b'i' => "int",
        b'k' => "uint",
        b'l' => "long",
        b'm' => "ulong",
        b'f' => "float",
        b'd' => "double",
        b'e' => "real",
        b'o' => "ifloat",
        b'p' => "idouble",
        b'j' => "ireal",
        b'q' => "cfloat",
        b'r' => "cdouble",
        b'c' => "creal",
        b'b' => "bool",
        b'a' => "char",
        b'u' => "wchar",
        b'w' => "dchar",
        _ => return None,
    })
}
