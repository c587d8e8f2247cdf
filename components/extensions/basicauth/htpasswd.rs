//! Users and the hashes of their passwords.
//!
//! bcrypt takes long on purpose, far too long for every request of every agent. So of each user the
//! password that was right last is remembered, hashed with a key that this process has made up, and
//! only a password that differs from it is held to the real hash.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
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
    remembered: Mutex<Option<hmac::Tag>>,
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

/// Hashes that are refused, so that they are not taken for passwords.
const UNSUPPORTED: [(&str, &str); 6] = [
    ("$apr1$", "Apache's MD5"),
    ("$1$", "MD5-crypt"),
    ("$5$", "SHA-256-crypt"),
    ("$6$", "SHA-512-crypt"),
    ("$y$", "yescrypt"),
    ("$argon2", "Argon2"),
];

/// The key for what is remembered of passwords.
pub(super) struct Memory(hmac::Key);

impl Htpasswd {
    /// Reads lines of `user:hash`; of a user that stands there twice the last counts.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut users = HashMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            // The message must not hold the line: it may be a password.
            let (name, hash) = line
                .split_once(':')
                .ok_or_else(|| format!("line {number}: not of the form user:hash"))?;
            let hash = Hash::parse(hash)
                .map_err(|reason| format!("line {number}: user {name:?}: {reason}"))?;
            let remembered = Mutex::new(None);
            users.insert(name.to_owned(), Arc::new(User { hash, remembered }));
        }
        Ok(Self { users })
    }

    pub(super) fn user(&self, name: &str) -> Option<Arc<User>> {
        self.users.get(name).cloned()
    }
}

impl User {
    /// Whether the password was right before.
    pub(super) fn remembers(&self, password: &str, memory: &Memory) -> bool {
        let remembered = self
            .remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        remembered
            .as_ref()
            .is_some_and(|tag| hmac::verify(&memory.0, password.as_bytes(), tag.as_ref()).is_ok())
    }

    /// Whether the password is right. May take a good part of a second.
    pub(super) fn check(&self, password: &str, memory: &Memory) -> bool {
        let right = self.hash.matches(password);
        if right {
            let tag = hmac::sign(&memory.0, password.as_bytes());
            let mut remembered = self
                .remembered
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            *remembered = Some(tag);
        }
        right
    }
}

impl Hash {
    fn parse(text: &str) -> Result<Self, String> {
        if let Some((_, kind)) = UNSUPPORTED
            .iter()
            .find(|(prefix, _)| text.starts_with(prefix))
        {
            return Err(format!(
                "{kind} hashes are not supported; make one with `htpasswd -B`"
            ));
        }
        if ["$2a$", "$2b$", "$2x$", "$2y$"]
            .iter()
            .any(|prefix| text.starts_with(prefix))
        {
            text.parse::<bcrypt::HashParts>()
                .map_err(|_| "the bcrypt hash is damaged".to_owned())?;
            return Ok(Self::Bcrypt(text.to_owned()));
        }
        let salted = text.strip_prefix("{SSHA}");
        if let Some(encoded) = salted.or_else(|| text.strip_prefix("{SHA}")) {
            return Self::sha(encoded, salted.is_some())
                .ok_or_else(|| "the SHA hash is damaged".to_owned());
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

impl Memory {
    pub(super) fn new() -> Result<Self, String> {
        hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map(Self)
            .map_err(|_| "failed to get random bytes from the operating system".to_owned())
    }
}

impl fmt::Debug for Htpasswd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} users", self.users.len())
    }
}
