//! Users and their password hashes.
//!
//! bcrypt is slow on purpose, far too slow for every request of every agent. So the last correct password of
//! each user is cached, hashed with a random key of this process, and
//! only a different password is checked against the real hash.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA1_OUTPUT_LEN};
use ring::hmac;
use ring::rand::SystemRandom;
use subtle::ConstantTimeEq;

/// Users by name.
#[derive(Default)]
pub(super) struct Htpasswd {
    users: HashMap<String, Arc<User>>,
}

pub(super) struct User {
    hash: Hash,
    cached: Mutex<Option<hmac::Tag>>,
}

enum Hash {
    Bcrypt(String),
    /// SHA-1 of the password and a salt, which may be empty.
    Sha {
        digest: [u8; SHA1_OUTPUT_LEN],
        salt: Vec<u8>,
    },
    Plain(String),
}

/// Rejected, so that they are not taken for plain passwords.
const UNSUPPORTED: [(&str, &str); 6] = [
    ("$apr1$", "Apache's MD5"),
    ("$1$", "MD5-crypt"),
    ("$5$", "SHA-256-crypt"),
    ("$6$", "SHA-512-crypt"),
    ("$y$", "yescrypt"),
    ("$argon2", "Argon2"),
];

/// An invalid line. Never shows the line itself: it may be a password.
#[derive(Debug, thiserror::Error)]
pub(super) enum HtpasswdError {
    #[error("line {line}: not of the form user:hash")]
    Form { line: usize },
    #[error("line {line}: user {user:?}: {error}")]
    Hash {
        line: usize,
        user: String,
        #[source]
        error: HashError,
    },
}

#[derive(Debug, thiserror::Error)]
pub(super) enum HashError {
    #[error("{0} hashes are not supported; create one with `htpasswd -B`")]
    Unsupported(&'static str),
    #[error("the {0} hash is damaged")]
    Damaged(&'static str),
}

#[derive(Debug, thiserror::Error)]
#[error("failed to get random bytes from the operating system")]
pub(super) struct NoRandomBytes;

/// The key for cached passwords.
pub(super) struct CacheKey(hmac::Key);

impl Htpasswd {
    /// Parses lines of `user:hash`; the last line of a user wins.
    pub(super) fn parse(text: &str) -> Result<Self, HtpasswdError> {
        let mut users = HashMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            // The message must not contain the line: it may be a password.
            let (name, hash) = line
                .split_once(':')
                .ok_or(HtpasswdError::Form { line: number })?;
            let hash = Hash::parse(hash).map_err(|error| HtpasswdError::Hash {
                line: number,
                user: name.to_owned(),
                error,
            })?;
            let cached = Mutex::new(None);
            users.insert(name.to_owned(), Arc::new(User { hash, cached }));
        }
        Ok(Self { users })
    }

    pub(super) fn user(&self, name: &str) -> Option<Arc<User>> {
        self.users.get(name).cloned()
    }
}

impl User {
    /// Whether the password was correct before.
    pub(super) fn is_cached(&self, password: &str, cache_key: &CacheKey) -> bool {
        let cached = self.cached.lock();
        cached.as_ref().is_some_and(|tag| {
            hmac::verify(&cache_key.0, password.as_bytes(), tag.as_ref()).is_ok()
        })
    }

    /// Whether the password is correct. May take up to a second.
    pub(super) fn check(&self, password: &str, cache_key: &CacheKey) -> bool {
        let right = self.hash.matches(password);
        if right {
            let tag = hmac::sign(&cache_key.0, password.as_bytes());
            let mut cached = self.cached.lock();
            *cached = Some(tag);
        }
        right
    }
}

impl Hash {
    fn parse(text: &str) -> Result<Self, HashError> {
        if let Some((_, kind)) = UNSUPPORTED
            .iter()
            .find(|(prefix, _)| text.starts_with(prefix))
        {
            return Err(HashError::Unsupported(kind));
        }
        if ["$2a$", "$2b$", "$2x$", "$2y$"]
            .iter()
            .any(|prefix| text.starts_with(prefix))
        {
            text.parse::<bcrypt::HashParts>()
                .map_err(|_| HashError::Damaged("bcrypt"))?;
            return Ok(Self::Bcrypt(text.to_owned()));
        }
        let salted = text.strip_prefix("{SSHA}");
        if let Some(encoded) = salted.or_else(|| text.strip_prefix("{SHA}")) {
            return Self::sha(encoded, salted.is_some()).ok_or(HashError::Damaged("SHA"));
        }
        Ok(Self::Plain(text.to_owned()))
    }

    fn sha(encoded: &str, salted: bool) -> Option<Self> {
        let bytes = STANDARD.decode(encoded).ok()?;
        let (digest, salt) = bytes.split_first_chunk()?;
        (salted || salt.is_empty()).then(|| Self::Sha {
            digest: *digest,
            salt: salt.to_vec(),
        })
    }

    fn matches(&self, password: &str) -> bool {
        match self {
            Self::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
            Self::Sha { digest, salt } => {
                let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
                context.update(password.as_bytes());
                context.update(salt);
                context.finish().as_ref().ct_eq(digest).into()
            }
            Self::Plain(expected) => expected.as_bytes().ct_eq(password.as_bytes()).into(),
        }
    }
}

impl CacheKey {
    pub(super) fn new() -> Result<Self, NoRandomBytes> {
        hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map(Self)
            .map_err(|_| NoRandomBytes)
    }
}

impl fmt::Debug for Htpasswd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} users", self.users.len())
    }
}
