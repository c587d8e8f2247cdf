//! Requires a token from clients of a receiver, and sends one with the requests of an exporter.

mod config;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use profcol_component::{
    BuildContext, BuildError, Check, Extension, Factory, Handles, Stability, StartError,
};
use profcol_config::Secret;
use profcol_net::auth::{AuthData, ClientAuth, ClientAuthError, Scheme, ServerAuth};
use profcol_net::grpc::{Code, Status};
use subtle::{Choice, ConstantTimeEq};

pub use self::config::BearerTokenAuthConfig;
use self::config::check_token;
use crate::watched_file::{self, Cause, WatchedFile};

/// Debug output has no tokens: they are `Secret`s, and a file is shown by its path.
#[derive(Debug)]
pub struct BearerTokenAuth {
    header: HeaderName,
    scheme: String,
    tokens: Arc<Vec<Secret>>,
    filename: Option<String>,
    /// Opened at startup.
    file: OnceLock<WatchedFile<Vec<Secret>>>,
}

impl Factory for BearerTokenAuth {
    const NAME: &'static str = "bearertokenauth";
    const STABILITY: Stability = Stability::Beta;
    type Config = BearerTokenAuthConfig;
    type Component = dyn Extension;

    fn build(
        config: &BearerTokenAuthConfig,
        _: &BuildContext,
    ) -> Result<Box<dyn Extension>, BuildError> {
        Ok(Box::new(BearerTokenAuth::new(config)?))
    }
}

impl BearerTokenAuth {
    fn new(config: &BearerTokenAuthConfig) -> Result<Self, BuildError> {
        let header = HeaderName::try_from(&config.header)
            .map_err(|error| BuildError::new(format!("header {:?}: {error}", config.header)))?;
        let one = (!config.token.is_empty()).then(|| config.token.clone());
        Ok(Self {
            header,
            scheme: config.scheme.clone(),
            tokens: Arc::new(one.into_iter().chain(config.tokens.clone()).collect()),
            filename: (!config.filename.is_empty()).then(|| config.filename.clone()),
            file: OnceLock::new(),
        })
    }

    /// `None` before the file was read.
    fn tokens(&self) -> Option<Arc<Vec<Secret>>> {
        match (&self.filename, self.file.get()) {
            (None, _) => Some(Arc::clone(&self.tokens)),
            (Some(_), Some(file)) => Some(file.current()),
            (Some(_), None) => None,
        }
    }

    fn header_text(&self, token: &Secret) -> String {
        match self.scheme.as_str() {
            "" => token.expose().to_owned(),
            scheme => format!("{scheme} {}", token.expose()),
        }
    }

    /// Constant time, whichever token it is and however much of it matches.
    fn accepts(&self, found: &[u8]) -> bool {
        let tokens = self.tokens().unwrap_or_default();
        let matches = tokens
            .iter()
            .map(|token| self.header_text(token).as_bytes().ct_eq(found));
        matches.fold(Choice::from(0), |any, this| any | this).into()
    }
}

/// One token per non-empty line.
fn parse_tokens(text: &str) -> Result<Vec<Secret>, Cause> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let tokens: Vec<Secret> = lines
        .map(|line| {
            check_token(line)
                .map(|()| Secret::new(line))
                .map_err(Cause::from)
        })
        .collect::<Result<_, _>>()?;
    if tokens.is_empty() {
        return Err("it contains no token".into());
    }
    Ok(tokens)
}

#[async_trait]
impl Extension for BearerTokenAuth {
    fn offer(self: Arc<Self>, handles: &mut Handles) {
        handles.add::<Arc<dyn ServerAuth>>(Arc::clone(&self) as _);
        handles.add::<Arc<dyn ClientAuth>>(self);
    }

    async fn start(&self) -> Result<(), StartError> {
        let Some(filename) = &self.filename else {
            return Ok(());
        };
        if !self.tokens.is_empty() {
            tracing::warn!("a filename is specified. Configured token is ignored!");
        }
        let file = WatchedFile::open(filename, parse_tokens).map_err(StartError::new)?;
        self.file.get_or_init(|| file);
        Ok(())
    }

    async fn check(&self) -> Vec<Check> {
        let open = |path: &String| WatchedFile::open(path, parse_tokens).map(|_| ());
        let path = self.filename.iter();
        path.map(|path| watched_file::check(path, open(path)))
            .collect()
    }
}

#[async_trait]
impl ServerAuth for BearerTokenAuth {
    async fn authenticate(&self, headers: &HeaderMap) -> Result<AuthData, Status> {
        let found = headers.get(&self.header).map(HeaderValue::as_bytes);
        match found {
            None | Some([]) => {
                let message = format!("missing or empty authorization header: {}", self.header);
                Err(Status::new(Code::Unauthenticated, message))
            }
            Some(found) if self.accepts(found) => Ok(AuthData::default()),
            Some(_) => Err(Status::new(
                Code::Unauthenticated,
                "provided authorization does not match expected scheme or token",
            )),
        }
    }

    fn scheme(&self) -> Option<Scheme> {
        // Names of schemes consist of the same characters as names of headers.
        let is_scheme = HeaderName::try_from(&self.scheme).is_ok();
        (is_scheme && self.header == AUTHORIZATION).then(|| Scheme::Token(self.scheme.clone()))
    }
}

#[async_trait]
impl ClientAuth for BearerTokenAuth {
    async fn headers(&self) -> Result<Vec<(HeaderName, HeaderValue)>, ClientAuthError> {
        let tokens = self.tokens().unwrap_or_default();
        let token = tokens
            .first()
            .ok_or_else(|| ClientAuthError::new("no token has been read yet"))?;
        let mut value = HeaderValue::from_str(&self.header_text(token))
            .map_err(|_| ClientAuthError::new("the token is not a valid header value"))?;
        value.set_sensitive(true);
        Ok(vec![(self.header.clone(), value)])
    }
}
