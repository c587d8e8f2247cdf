//! Client TLS.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::TlsConnector;

use super::reload::Reloading;
use super::settings::Source;
use super::{ClientTls, TlsError, load};

/// Creates connectors with the current certificates.
#[derive(Debug)]
pub(crate) struct ClientSide {
    config: Reloading<ClientConfig>,
    server_name: String,
}

impl ClientSide {
    /// Reads all files once; `None` if TLS is disabled. `https://` endpoints use TLS regardless of `insecure`.
    pub fn new(
        settings: &ClientTls,
        https: bool,
        protocols: &'static [&'static [u8]],
    ) -> Result<Option<ClientSide>, TlsError> {
        let (ca, pair) = (settings.ca()?, settings.pair()?);
        if settings.insecure && ca.is_none() && !https {
            return Ok(None);
        }
        let sources = ca
            .iter()
            .chain(pair.iter().flat_map(|pair| [&pair.cert, &pair.key]));
        let files = sources.filter_map(Source::path).collect();
        let interval = settings.reload_interval.to_std();
        let server_name = settings.server_name_override.clone();
        let settings = settings.clone();
        let load = move || build(&settings, protocols);
        let config = Reloading::new(files, interval, Box::new(load))?;
        Ok(Some(ClientSide {
            config,
            server_name,
        }))
    }

    pub fn connector(&self) -> TlsConnector {
        TlsConnector::from(self.config.get())
    }

    /// The name to verify in the server's certificate.
    pub fn server_name(&self, host: &str) -> Result<ServerName<'static>, TlsError> {
        let name = if self.server_name.is_empty() {
            host
        } else {
            &self.server_name
        };
        ServerName::try_from(name.to_owned()).map_err(|_| {
            let message =
                format!("{name:?} is not a valid server name; set `server_name_override`");
            TlsError::Settings(message)
        })
    }
}

fn build(settings: &ClientTls, protocols: &[&[u8]]) -> Result<ClientConfig, TlsError> {
    let protocol = settings.protocol();
    let provider = protocol.provider()?;
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&protocol.versions()?)?;
    let builder = if settings.insecure_skip_verify {
        let verifier = Arc::new(AcceptAnyCertificate(provider.clone()));
        builder
            .dangerous()
            .with_custom_certificate_verifier(verifier)
    } else {
        let ca = settings.ca()?;
        builder.with_root_certificates(load::roots(
            ca.as_ref(),
            settings.include_system_ca_certs_pool,
        )?)
    };
    let mut config = match settings.pair()? {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let certified = load::certified_key(&pair, &provider)?;
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified)))
        }
    };
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(config)
}

/// `insecure_skip_verify`: accepts any certificate whose key the server holds.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
