//! Loads certificates, keys and roots for rustls.

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tracing::warn;

use super::TlsError;
use super::settings::{Pair, PemLocation, Source};
use super::validity;

/// Reads a certificate chain and its key, and checks that they match.
pub(super) fn certified_key(
    pair: &Pair,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(&pair.cert)?;
    let key_text = read(&pair.key, "private key")?;
    let key = PrivateKeyDer::from_pem_slice(&key_text).map_err(|_| TlsError::Empty {
        source_name: pair.key.name(),
        what: "private key",
        hint: if key_text.windows(9).any(|word| word == b"ENCRYPTED") {
            "; it is encrypted, which is not supported: decrypt it with `openssl pkey`"
        } else {
            ""
        },
    })?;
    let first = chain.first().map(|cert| cert.to_vec()).unwrap_or_default();
    let certified = CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => TlsError::Mismatch {
            cert: pair.cert.name(),
            key: pair.key.name(),
        },
        error => TlsError::Invalid {
            source_name: pair.key.name(),
            error: error.into(),
        },
    })?;
    if let Some(ended) = validity::expired(&first, std::time::SystemTime::now()) {
        warn!(
            "the certificate in {} expired at {ended}: peers will reject it; replace it with a renewed one",
            pair.cert.name(),
        );
    }
    Ok(certified)
}

/// The CAs to trust: the given ones, the system's, or both.
pub(super) fn roots(ca: Option<&Source>, with_system: bool) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    if with_system || ca.is_none() {
        let found = rustls_native_certs::load_native_certs();
        store.add_parsable_certificates(found.certs);
        if store.is_empty() && ca.is_none() {
            return Err(TlsError::NoSystemRoots);
        }
    }
    if let Some(ca) = ca {
        for certificate in certificates(ca)? {
            store.add(certificate).map_err(|error| TlsError::Invalid {
                source_name: ca.name(),
                error: error.into(),
            })?;
        }
    }
    Ok(store)
}

fn certificates(source: &Source) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(source, "certificate")?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|error| TlsError::Invalid {
        source_name: source.name(),
        error: error.into(),
    })?;
    if chain.is_empty() {
        let what = "certificate";
        return Err(TlsError::Empty {
            source_name: source.name(),
            what,
            hint: "",
        });
    }
    Ok(chain)
}

fn read(source: &Source, what: &'static str) -> Result<Vec<u8>, TlsError> {
    match &source.location {
        PemLocation::Inline(text) => Ok(text.expose().as_bytes().to_vec()),
        PemLocation::File(path) => std::fs::read(path).map_err(|error| TlsError::Read {
            what,
            path: path.clone(),
            error,
            key: source.key,
        }),
    }
}
