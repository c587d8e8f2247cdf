//! Sources of configuration text: environment, files and network.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::error::Error;
use std::hash::{Hash, Hasher};
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::sources::MAX_TEXT_BYTES;

/// Access to the sources of `${…}` and `--config`. Tests and fuzzers provide their own.
pub trait ConfigProviders {
    /// The value of an environment variable, if it is set.
    fn env(&self, name: &str) -> Result<Option<String>, ProviderError>;
    /// The contents of a file. May stop reading beyond [`MAX_TEXT_BYTES`].
    fn read(&self, path: &str) -> Result<Vec<u8>, ProviderError>;
    /// The body at an `http:` or `https:` URL.
    fn fetch(&self, url: &str) -> Result<Vec<u8>, ProviderError>;
}

/// Why a source has no text.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    #[error("environment variable {0:?} is not valid UTF-8")]
    Encoding(String),
    #[error("open {path}: {}", plain(.error))]
    Open {
        path: String,
        #[source]
        error: io::Error,
    },
    #[error("read {path}: {}", plain(.error))]
    Read {
        path: String,
        #[source]
        error: io::Error,
    },
    #[error("no HTTP client available")]
    NoClient,
    #[error(transparent)]
    Fetch(Box<dyn Error + Send + Sync>),
}

type Fetch = dyn Fn(&str) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> + Send + Sync;

/// This process's environment and files. The caller provides the download client.
#[derive(Default)]
pub struct SystemProviders {
    fetch: Option<Box<Fetch>>,
    files: Mutex<BTreeMap<PathBuf, Option<u64>>>,
}

impl SystemProviders {
    #[must_use]
    pub fn with_fetch<E: Error + Send + Sync + 'static>(
        mut self,
        fetch: impl Fn(&str) -> Result<Vec<u8>, E> + Send + Sync + 'static,
    ) -> Self {
        self.fetch = Some(Box::new(move |url| Ok(fetch(url)?)));
        self
    }

    /// The files read so far with a [hash](content_hash) of their content, or `None` if they could not be read.
    pub fn files_read(&self) -> BTreeMap<PathBuf, Option<u64>> {
        self.files
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl ConfigProviders for SystemProviders {
    fn env(&self, name: &str) -> Result<Option<String>, ProviderError> {
        match std::env::var_os(name).map(|value| value.into_string()) {
            None => Ok(None),
            Some(Ok(value)) => Ok(Some(value)),
            Some(Err(_)) => Err(ProviderError::Encoding(name.to_owned())),
        }
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, ProviderError> {
        let content = read(path);
        let hash = content.as_ref().ok().map(|content| content_hash(content));
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.insert(PathBuf::from(path), hash);
        content
    }

    fn fetch(&self, url: &str) -> Result<Vec<u8>, ProviderError> {
        match &self.fetch {
            Some(fetch) => fetch(url).map_err(ProviderError::Fetch),
            None => Err(ProviderError::NoClient),
        }
    }
}

/// A hash to notice a change of a file, valid within this process.
pub fn content_hash(content: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

fn read(path: &str) -> Result<Vec<u8>, ProviderError> {
    let file = std::fs::File::open(path).map_err(|error| ProviderError::Open {
        path: path.to_owned(),
        error,
    })?;
    let mut bytes = Vec::new();
    // One byte beyond the limit signals the caller that the file is too large.
    let limit = MAX_TEXT_BYTES as u64 + 1;
    match file.take(limit).read_to_end(&mut bytes) {
        Ok(_) => Ok(bytes),
        Err(error) => Err(ProviderError::Read {
            path: path.to_owned(),
            error,
        }),
    }
}

/// The operating system's message without Rust's `(os error 2)`.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut chars = text.chars();
    chars
        .next()
        .map(|first| first.to_ascii_lowercase())
        .into_iter()
        .chain(chars)
        .collect()
}
