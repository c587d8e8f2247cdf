//! The client side, for exporters: sends credentials.

use std::sync::OnceLock;

use async_trait::async_trait;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use profcol_component::Check;
use profcol_config::Secret;
use profcol_net::auth::{ClientAuth, ClientAuthError, basic_authorization};

use super::config::ClientAuthSettings;
use crate::watched_file::{self, FileError, WatchedFile};

#[derive(Debug)]
pub(super) struct Client {
    username: Text,
    password: Text,
}

/// A value from the configuration, or from a file.
#[derive(Debug)]
enum Text {
    Fixed(Secret),
    File {
        path: String,
        content: OnceLock<WatchedFile<Secret>>,
    },
}

impl Client {
    pub(super) fn new(settings: &ClientAuthSettings) -> Self {
        Self {
            username: Text::new(&settings.username_file, &Secret::new(&settings.username)),
            password: Text::new(&settings.password_file, &settings.password),
        }
    }

    pub(super) fn start(&self) -> Result<(), FileError> {
        self.username.open()?;
        self.password.open()
    }
}

impl Client {
    pub(super) fn check(&self) -> Vec<Check> {
        let texts = [&self.username, &self.password].into_iter();
        texts.filter_map(Text::check).collect()
    }
}

impl Text {
    fn check(&self) -> Option<Check> {
        match self {
            Self::Fixed(_) => None,
            Self::File { path, .. } => Some(watched_file::check(path, self.open())),
        }
    }

    fn new(file: &str, text: &Secret) -> Self {
        match file {
            "" => Self::Fixed(text.clone()),
            path => Self::File {
                path: path.to_owned(),
                content: OnceLock::new(),
            },
        }
    }

    fn open(&self) -> Result<(), FileError> {
        if let Self::File { path, content } = self {
            let trimmed = |text: &str| Ok(Secret::new(text.trim()));
            let file = WatchedFile::open(path, trimmed)?;
            content.get_or_init(|| file);
        }
        Ok(())
    }

    fn current(&self) -> Result<Secret, ClientAuthError> {
        match self {
            Self::Fixed(text) => Ok(text.clone()),
            Self::File { path, content } => {
                let content = content.get().map(|file| Secret::clone(&file.current()));
                content.ok_or_else(|| ClientAuthError::new(format!("{path} has not been read yet")))
            }
        }
    }
}

#[async_trait]
impl ClientAuth for Client {
    async fn headers(&self) -> Result<Vec<(HeaderName, HeaderValue)>, ClientAuthError> {
        let (username, password) = (self.username.current()?, self.password.current()?);
        if username.expose().contains(':') {
            return Err(ClientAuthError::new(
                "invalid authorization format: the username contains `:`",
            ));
        }
        let (username, password) = (username.expose().as_bytes(), password.expose().as_bytes());
        Ok(vec![(
            AUTHORIZATION,
            basic_authorization(username, password),
        )])
    }
}
