//! The texts that the configuration was made from, kept so that a problem can show the very line it stands on.

use std::sync::Arc;

use crate::node::Location;

/// More text than this, all files, variables and downloads together and each as often as it is
/// used, is refused.
pub const MAX_TOTAL_BYTES: usize = 64 << 20;
/// One text may not be larger than this.
pub const MAX_TEXT_BYTES: usize = 16 << 20;
/// How many texts (each expansion of a `${…}` is one) a configuration may be made from.
pub const MAX_SOURCES: usize = 16_384;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceId(u32);

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
    /// Keeps a text. `used_at` is the place of the `${…}` that brought it in, none for what the
    /// user named directly.
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

    /// The line that `at` stands on, without its line break.
    pub fn line(&self, at: Location) -> Option<&str> {
        let text = self.text(at.source);
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        text.lines().nth(at.line.checked_sub(1)? as usize)
    }

    fn source(&self, id: SourceId) -> Option<&Source> {
        self.list.get(id.0 as usize)
    }
}
