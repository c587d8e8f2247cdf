//! Text of bounded length, formatting of values, and the normal form: a line per profile.

use std::fmt::{self, Display, Write};

use profcol_profile::{
    AttributeIdx, Attributes, Dictionary, KeyValue, Model, Profile, Scope, Value,
};

/// Maximum length of the text for one batch.
pub(super) const MAX_TEXT: usize = 1 << 20;

/// Text with a maximum length. Content is escaped, so that a name can neither control a terminal nor break a line;
/// lines end with [`Text::end_line`].
pub(super) struct Text {
    text: String,
    limit: usize,
}

/// A value with its type, such as `Int(3)`.
pub(super) struct Typed<'a>(pub(super) &'a Value);

/// A value without its type, such as `3`.
pub(super) struct Plain<'a>(pub(super) &'a Value);

pub(super) struct Hex<'a>(pub(super) &'a [u8]);

/// A line per resource, scope and profile.
pub(super) fn normal(model: &Model) -> String {
    Text::filled_by(MAX_TEXT, |out| write_normal(out, model))
}

fn write_normal(out: &mut Text, model: &Model) -> fmt::Result {
    for (number, resource) in model.resources.iter().enumerate() {
        write!(out, "ResourceProfiles #{number}")?;
        write_schema(out, &resource.schema_url)?;
        if let Some(resource) = &resource.resource {
            write_attributes(out, &resource.attributes)?;
        }
        for (number, scope) in resource.scopes.iter().enumerate() {
            out.end_line()?;
            write!(out, "ScopeProfiles #{number}")?;
            write_scope(out, scope.scope.as_deref(), &scope.schema_url)?;
            for profile in &scope.profiles {
                out.end_line()?;
                write_profile(out, &model.dictionary, profile)?;
            }
        }
        out.end_line()?;
    }
    Ok(())
}

fn write_schema(out: &mut Text, url: &str) -> fmt::Result {
    match url {
        "" => Ok(()),
        url => write!(out, " [{url}]"),
    }
}

fn write_scope(out: &mut Text, scope: Option<&Scope>, schema_url: &str) -> fmt::Result {
    if let Some(scope) = scope {
        if !scope.name.is_empty() {
            write!(out, " {}", scope.name)?;
        }
        if !scope.version.is_empty() {
            write!(out, "@{}", scope.version)?;
        }
    }
    write_schema(out, schema_url)?;
    scope.map_or(Ok(()), |scope| write_attributes(out, &scope.attributes))
}

fn write_attributes(out: &mut Text, attributes: &Attributes) -> fmt::Result {
    attributes
        .iter()
        .try_for_each(|KeyValue { key, value }| write!(out, " {key}={}", Plain(value)))
}

fn write_profile(out: &mut Text, tables: &Dictionary, profile: &Profile) -> fmt::Result {
    if let Some(id) = &profile.profile_id {
        write!(out, "{} ", Hex(id))?;
    }
    if let Some(of) = profile.sample_type {
        let (kind, unit) = (tables.strings.get(of.kind), tables.strings.get(of.unit));
        write!(out, "{kind}/{unit} ")?;
    }
    write!(out, "samples={}", profile.samples.len())?;
    named(tables, &profile.attributes)
        .try_for_each(|(key, value)| write!(out, " {key}={}", Plain(value)))
}

/// The attributes at `indices`.
pub(super) fn named<'a>(
    tables: &'a Dictionary,
    indices: &'a [AttributeIdx],
) -> impl Iterator<Item = (&'a str, &'a Value)> {
    indices.iter().filter_map(|&index| {
        let attribute = tables.attributes.get(index)?;
        Some((tables.strings.get(attribute.key), &attribute.value))
    })
}

// === impl Text ===

impl Text {
    /// The text written by `write`, truncated at `limit` bytes with a last line that says so.
    pub(super) fn filled_by(limit: usize, write: impl FnOnce(&mut Self) -> fmt::Result) -> String {
        let mut out = Self {
            text: String::new(),
            limit,
        };
        let whole = write(&mut out);
        let mut text = out.text;
        if whole.is_err() {
            text.push_str("\n... truncated");
        } else if text.ends_with('\n') {
            text.pop();
        }
        text
    }

    /// One line.
    pub(super) fn line(&mut self, text: fmt::Arguments<'_>) -> fmt::Result {
        self.write_fmt(text)?;
        self.end_line()
    }

    pub(super) fn end_line(&mut self) -> fmt::Result {
        self.push("\n")
    }

    fn push(&mut self, text: &str) -> fmt::Result {
        if self.text.len() + text.len() > self.limit {
            let room = self.limit.saturating_sub(self.text.len());
            self.text.push_str(&text[..text.floor_char_boundary(room)]);
            self.limit = self.text.len();
            return Err(fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // Escaping never shortens a text.
        let room = self.limit.saturating_sub(self.text.len());
        let (shown, rest) = text.split_at(text.floor_char_boundary(room));
        self.push(&profcol_printable::line(shown))?;
        match rest {
            "" => Ok(()),
            _ => self.push(rest),
        }
    }
}

// === impl Typed, Plain, Hex ===

impl Display for Typed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.0 {
            Value::Empty => "Empty",
            Value::Str(_) => "Str",
            Value::Bool(_) => "Bool",
            Value::Int(_) => "Int",
            Value::Double(_) => "Double",
            Value::Bytes(_) => "Bytes",
            Value::Array(_) => "Slice",
            Value::Map(_) => "Map",
        };
        write!(f, "{kind}({})", Plain(self.0))
    }
}

impl Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Empty => Ok(()),
            Value::Str(text) => f.write_str(text),
            Value::Bool(flag) => flag.fmt(f),
            Value::Int(number) => number.fmt(f),
            Value::Double(number) => number.fmt(f),
            Value::Bytes(bytes) => Hex(bytes).fmt(f),
            Value::Array(items) => {
                f.write_char('[')?;
                for (number, item) in items.iter().enumerate() {
                    let comma = if number > 0 { ", " } else { "" };
                    write!(f, "{comma}{}", Typed(item))?;
                }
                f.write_char(']')
            }
            Value::Map(entries) => {
                f.write_char('{')?;
                for (number, KeyValue { key, value }) in entries.iter().enumerate() {
                    let comma = if number > 0 { ", " } else { "" };
                    write!(f, "{comma}{key}: {}", Typed(value))?;
                }
                f.write_char('}')
            }
        }
    }
}

impl Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
