//! Server TLS.

use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use tokio_rustls::TlsAcceptor;

use super::reload::Reloading;
use super::settings::Source;
use super::{ServerTls, TlsError, load};

/// Check interval of `client_ca_file_reload`.
const CLIENT_CA_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Creates acceptors with the current certificate.
#[derive(Debug)]
pub(crate) struct ServerSide(Reloading<ServerConfig>);

impl ServerSide {
    /// Reads all files once; `protocols` are offered by ALPN.
    pub fn new(
        settings: &ServerTls,
        protocols: &'static [&'static [u8]],
    ) -> Result<ServerSide, TlsError> {
        let pair = settings.pair()?;
        let client_ca = settings.client_ca();
        let mut files = Vec::new();
        let mut interval = settings.reload_interval.to_std();
        if !interval.is_zero() {
            files.extend([&pair.cert, &pair.key].into_iter().filter_map(Source::path));
        }
        if settings.client_ca_file_reload {
            files.extend(client_ca.as_ref().and_then(Source::path));
            interval = if interval.is_zero() {
                CLIENT_CA_CHECK_INTERVAL
            } else {
                interval.min(CLIENT_CA_CHECK_INTERVAL)
            };
        }
        let settings = settings.clone();
        let load = move || build(&settings, protocols);
        Reloading::new(files, interval, Box::new(load)).map(ServerSide)
    }

    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.0.get())
    }
}

fn build(settings: &ServerTls, protocols: &[&[u8]]) -> Result<ServerConfig, TlsError> {
    let protocol = settings.protocol();
    let provider = protocol.provider()?;
    let certified = load::certified_key(&settings.pair()?, &provider)?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&protocol.versions()?)?;
    let builder = match settings.client_ca() {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let roots = load::roots(Some(&ca), settings.include_system_ca_certs_pool)?;
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
                .build()
                .map_err(|error| TlsError::Invalid {
                    source_name: ca.name(),
                    error: error.into(),
                })?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    // Connections are few and long-lived; a session cache would only cost memory.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}
