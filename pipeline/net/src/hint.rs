//! What to change when a connection fails.

use std::{fmt, io};

use rustls::{AlertDescription, CertificateError, OtherError};

/// Advice, in terms of configuration options. Callers with other terms, such as flags, match on the variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    CheckEndpointAndDns,
    CheckEndpointAndFirewalls,
    CheckRoutesAndFirewalls,
    StartServer,
    CheckSocketPath,
    CheckSocketPermissions,
    CheckGrpc,
    /// No response yet on this connection.
    CheckGrpcAndTls,
    DisableTls,
    SetCaFile,
    RenewCertificate,
    IssueCertificate,
    OverrideServerName,
    SetClientCertificate,
    CheckClientCertificate,
    NoHttp2,
    CheckCredentials,
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl Hint {
    pub fn text(self) -> &'static str {
        match self {
            Self::CheckEndpointAndDns => "check the endpoint and this host's DNS",
            Self::CheckEndpointAndFirewalls => "check the endpoint and firewalls",
            Self::CheckRoutesAndFirewalls => "check routes and firewalls",
            Self::StartServer => "check that the server runs and listens on that address",
            Self::CheckSocketPath => "check the path of the socket",
            Self::CheckSocketPermissions => "check the permissions of the socket",
            Self::CheckGrpc => "check that the server speaks gRPC there",
            Self::CheckGrpcAndTls => {
                "the server did not respond over HTTP/2: check that the port serves gRPC, and whether it requires TLS"
            }
            Self::DisableTls => "if the server does not use TLS, set `tls::insecure: true`",
            Self::SetCaFile => {
                "set `tls::ca_file` to the CA certificate that signed the server's certificate"
            }
            Self::RenewCertificate => "the server's certificate must be renewed",
            Self::IssueCertificate => {
                "the server uses a CA certificate as its own: it needs a certificate issued by that CA"
            }
            Self::OverrideServerName => {
                "use a name from the certificate as endpoint, or set `tls::server_name_override`"
            }
            Self::SetClientCertificate => {
                "the server may require a client certificate: set `tls::cert_file` and `tls::key_file`"
            }
            Self::CheckClientCertificate => {
                "the server rejected the client certificate: check `tls::cert_file`"
            }
            Self::NoHttp2 => "the endpoint does not support HTTP/2",
            Self::CheckCredentials => {
                "check the token or password, and that this process may read its file"
            }
        }
    }

    /// After a failed TLS handshake.
    pub fn from_handshake(error: &io::Error) -> Option<Self> {
        let Some(error) = error.get_ref().and_then(|it| it.downcast_ref()) else {
            return match error.kind() {
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                    Some(Self::DisableTls)
                }
                _ => None,
            };
        };
        match error {
            rustls::Error::InvalidMessage(_) => Some(Self::DisableTls),
            rustls::Error::InvalidCertificate(error) => Self::from_certificate(error),
            rustls::Error::AlertReceived(alert) => Self::from_alert(*alert),
            _ => None,
        }
    }

    fn from_certificate(error: &CertificateError) -> Option<Self> {
        match error {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                Some(Self::SetCaFile)
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                Some(Self::RenewCertificate)
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Some(Self::OverrideServerName)
            }
            CertificateError::Other(OtherError(error)) => match error.downcast_ref() {
                Some(webpki::Error::CaUsedAsEndEntity) => Some(Self::IssueCertificate),
                _ => None,
            },
            _ => None,
        }
    }

    /// After the server ended the handshake, or rejected it later.
    pub(crate) fn from_alert(alert: AlertDescription) -> Option<Self> {
        use AlertDescription as Alert;
        match alert {
            Alert::CertificateRequired | Alert::HandshakeFailure => {
                Some(Self::SetClientCertificate)
            }
            Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::CertificateUnknown
            | Alert::CertificateExpired
            | Alert::CertificateRevoked
            | Alert::DecryptError
            | Alert::AccessDenied => Some(Self::CheckClientCertificate),
            Alert::NoApplicationProtocol => Some(Self::NoHttp2),
            _ => None,
        }
    }
}

/// The end of an error's text: `; ` and the hint, if there is one.
pub(crate) struct HintSuffix(pub Option<Hint>);

impl fmt::Display for HintSuffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}
