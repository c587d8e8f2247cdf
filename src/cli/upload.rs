//! The arguments of `profcol upload`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use profcol_config::Duration;

use super::label;

/// Recordings and where they go. All else is as the receiver `padata` and the exporter `parca` have it
/// by default; `--set exporters.parca.KEY=VALUE` changes that.
#[derive(Args, Debug)]
pub struct Upload {
    /// The folder with the recordings, `.padata` and `.padata.zst`
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// The server: `grpcs://HOST:PORT`, `grpc://HOST:PORT` for plaintext, or `HOST:PORT`
    #[arg(long, value_name = "SERVER", required_unless_present = "dry_run")]
    pub to: Option<Server>,
    /// List the recordings and what was already uploaded; send and delete nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Keep the files and mark them as delivered, instead of deleting them
    #[arg(long)]
    pub keep: bool,
    /// A header for each request; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = label)]
    pub headers: Vec<(String, String)>,
    /// File with the bearer token
    #[arg(long, value_name = "FILE")]
    pub bearer_token_file: Option<String>,
    /// Use plaintext if the server has no scheme
    #[arg(long)]
    pub insecure: bool,
    /// Do not check the server's certificate
    #[arg(long)]
    pub insecure_skip_verify: bool,
    /// CA certificate of the server, if it is not in the system's store
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<String>,
    /// Retry for this long while the server is unreachable; `0s` retries forever
    #[arg(long, value_name = "DURATION", default_value = "1m")]
    pub give_up_after: Duration,
}

/// A server as `--to` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub address: String,
    /// None where the scheme does not say.
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
                    "{scheme:?} is not a scheme of a Parca server, which are grpc:// and grpcs://; \
                     to send recordings elsewhere, run a configuration with the receiver `padata`"
                ));
            }
        };
        if address.is_empty() {
            return Err("it names no host".to_owned());
        }
        Ok(Self {
            address: address.to_owned(),
            is_plaintext,
        })
    }
}
