//! The configuration's source texts, kept so that problems can show the source line.

use std::sync::Arc;

/// Limit on all files, variables and downloads together, each counted per use.
pub const MAX_TOTAL_BYTES: usize = 64 << 20;
/// Maximum size of one text.
pub const MAX_TEXT_BYTES: usize = 16 << 20;
/// Maximum number of texts; each expansion of a `${…}` is one.
pub const MAX_SOURCES: usize = 16_384;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceId(u32);

/// A location in one of the configuration's source texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    pub source: SourceId,
    /// 1-based.
    pub line: u32,
    /// In characters, 1-based.
    pub column: u32,
    /// Length in characters; 0 if unknown.
    pub width: u32,
}

#[derive(Debug, Default)]
pub struct Sources {
    list: Vec<Source>,
    bytes: usize,
}

#[derive(Debug)]
struct Source {
    name: String,
    text: Arc<str>,
    used_at: Option<Location>,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SourceLimitError {
    #[error("`{name}` is larger than {} MiB", MAX_TEXT_BYTES >> 20)]
    Text { name: String },
    #[error("the configuration exceeds {} MiB in total", MAX_TOTAL_BYTES >> 20)]
    Total,
    #[error(
        "the configuration has more than {MAX_SOURCES} sources (each expanded `${{…}}` counts as one)"
    )]
    Sources,
}

impl Sources {
    /// Adds a text. `used_at` is the location of the `${…}` that referenced it, `None` for texts named on the command
    /// line.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        text: impl Into<Arc<str>>,
        used_at: Option<Location>,
    ) -> Result<SourceId, SourceLimitError> {
        let (name, text) = (name.into(), text.into());
        if text.len() > MAX_TEXT_BYTES {
            return Err(SourceLimitError::Text { name });
        }
        if self.bytes + text.len() > MAX_TOTAL_BYTES {
            return Err(SourceLimitError::Total);
        }
        let id = match u32::try_from(self.list.len()) {
            Ok(id) if self.list.len() < MAX_SOURCES => SourceId(id),
            _ => return Err(SourceLimitError::Sources),
        };
        self.bytes += text.len();
        self.list.push(Source {
            name,
            text,
            used_at,
        });
        Ok(id)
    }

    pub fn name(&self, id: SourceId) -> &str {
        self.source(id).map_or("?", |source| &source.name)
    }

    pub fn text(&self, id: SourceId) -> &str {
        self.source(id).map_or("", |source| &source.text)
    }

    pub fn used_at(&self, id: SourceId) -> Option<Location> {
        self.source(id)?.used_at
    }

    /// The line of `at`, without its line break.
    pub fn line(&self, at: Location) -> Option<&str> {
        let text = self.text(at.source);
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        text.lines().nth(at.line.checked_sub(1)? as usize)
    }

    fn source(&self, id: SourceId) -> Option<&Source> {
        self.list.get(id.0 as usize)
    }
}
