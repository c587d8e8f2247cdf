//! The arguments of `profcol upload`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use profcol_config::Duration;

use super::label;

/// Recordings and their destination. Other settings are the defaults of the `padata` receiver and the `parca` exporter;
/// change them with `--set exporters.parca.KEY=VALUE`.
#[derive(Args, Debug)]
pub struct Upload {
    /// Directory with the recordings, `.padata` and `.padata.zst`
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Server: `grpcs://HOST:PORT`, `grpc://HOST:PORT` for plaintext, or `HOST:PORT`
    #[arg(long, value_name = "SERVER", required_unless_present = "dry_run")]
    pub to: Option<Server>,
    /// List the recordings and what was already uploaded, without sending or deleting anything
    #[arg(long)]
    pub dry_run: bool,
    /// Mark files as delivered instead of deleting them
    #[arg(long)]
    pub keep: bool,
    /// Header to send with each request; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = label)]
    pub headers: Vec<(String, String)>,
    /// File with the bearer token
    #[arg(long, value_name = "FILE")]
    pub bearer_token_file: Option<String>,
    /// Use plaintext if the server URL has no scheme
    #[arg(long)]
    pub insecure: bool,
    /// Do not verify the server's certificate
    #[arg(long)]
    pub insecure_skip_verify: bool,
    /// CA certificate of the server, if it is not in the system's store
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<String>,
    /// Retry for this long while the server is unreachable; `0s` retries forever
    #[arg(long, value_name = "DURATION", default_value = "1m")]
    pub give_up_after: Duration,
}

/// The value of `--to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub address: String,
    /// `None` without a scheme.
    pub is_plaintext: Option<bool>,
}

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (is_plaintext, address) = match text.split_once("://") {
            None => (None, text),
            Some(("grpc", address)) => (Some(true), address),
            Some(("grpcs", address)) => (Some(false), address),
            Some((scheme, _)) => {
                return Err(format!(
                    "unsupported scheme {scheme:?}: use grpc:// or grpcs://; \
                     to send recordings elsewhere, run a configuration with the receiver `padata`"
                ));
            }
        };
        if address.is_empty() {
            return Err("host is missing".to_owned());
        }
        Ok(Self {
            address: address.to_owned(),
            is_plaintext,
        })
    }
}
