//! The server side, for receivers: checks credentials.

use std::fmt;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use profcol_component::{BuildError, Check};
use profcol_net::auth::{AuthData, Scheme, ServerAuth};
use profcol_net::grpc::{Code, Status};
use tokio::sync::Semaphore;

use super::config::HtpasswdSettings;
use super::htpasswd::{CacheKey, Htpasswd, User};
use crate::watched_file::{self, FileError, WatchedFile};

/// Maximum number of concurrent password checks: guessing must not occupy all threads.
const MAX_CHECKS: usize = 2;

const SCHEME: &[u8] = b"basic ";

pub(super) struct Server {
    filename: Option<String>,
    inline: Htpasswd,
    file: OnceLock<WatchedFile<Htpasswd>>,
    cache_key: Arc<CacheKey>,
    checks: Semaphore,
}

struct Credentials {
    user: String,
    password: String,
}

impl Server {
    pub(super) fn new(settings: &HtpasswdSettings) -> Result<Self, BuildError> {
        Ok(Self {
            filename: (!settings.file.is_empty()).then(|| settings.file.clone()),
            inline: Htpasswd::parse(settings.inline.expose()).map_err(BuildError::new)?,
            file: OnceLock::new(),
            cache_key: Arc::new(CacheKey::new().map_err(BuildError::new)?),
            checks: Semaphore::new(MAX_CHECKS),
        })
    }

    pub(super) fn start(&self) -> Result<(), FileError> {
        if let Some(filename) = &self.filename {
            let parse = |text: &str| Htpasswd::parse(text).map_err(Into::into);
            let file = WatchedFile::open(filename, parse)?;
            self.file.get_or_init(|| file);
        }
        Ok(())
    }

    pub(super) fn check(&self) -> Vec<Check> {
        let path = self.filename.iter();
        path.map(|path| watched_file::check(path, self.start()))
            .collect()
    }

    fn user(&self, name: &str) -> Option<Arc<User>> {
        let in_file = || self.file.get()?.current().user(name);
        self.inline.user(name).or_else(in_file)
    }

    async fn is_right(&self, credentials: Credentials) -> bool {
        let Some(user) = self.user(&credentials.user) else {
            return false;
        };
        if user.is_cached(&credentials.password, &self.cache_key) {
            return true;
        }
        let Ok(_permit) = self.checks.acquire().await else {
            return false;
        };
        let cache_key = Arc::clone(&self.cache_key);
        let checking =
            tokio::task::spawn_blocking(move || user.check(&credentials.password, &cache_key));
        checking.await.unwrap_or(false)
    }
}

#[async_trait]
impl ServerAuth for Server {
    async fn authenticate(&self, headers: &HeaderMap) -> Result<AuthData, Status> {
        let header = headers.get(AUTHORIZATION).filter(|value| !value.is_empty());
        let header = header.ok_or_else(|| refused("no basic auth provided"))?;
        let credentials = Credentials::parse(header.as_bytes()).map_err(refused)?;
        let subject = credentials.user.as_str().into();
        if !self.is_right(credentials).await {
            return Err(refused("invalid credentials"));
        }
        Ok(AuthData {
            subject: Some(subject),
            ..AuthData::default()
        })
    }

    fn scheme(&self) -> Option<Scheme> {
        Some(Scheme::Basic)
    }
}

impl Credentials {
    fn parse(header: &[u8]) -> Result<Self, &'static str> {
        let encoded = match header.split_at_checked(SCHEME.len()) {
            Some((scheme, encoded)) if scheme.eq_ignore_ascii_case(SCHEME) => encoded,
            _ => return Err("invalid authorization scheme prefix"),
        };
        let text = STANDARD.decode(encoded).ok();
        let text = text.and_then(|bytes| String::from_utf8(bytes).ok());
        let text = text.ok_or("invalid authorization format")?;
        let (user, password) = text.split_once(':').ok_or("invalid authorization format")?;
        Ok(Self {
            user: user.to_owned(),
            password: password.to_owned(),
        })
    }
}

fn refused(message: &str) -> Status {
    Status::new(Code::Unauthenticated, message)
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("file", &self.filename)
            .field("inline", &self.inline)
            .finish_non_exhaustive()
    }
}
