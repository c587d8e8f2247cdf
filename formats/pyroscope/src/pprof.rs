//! A call tree as a pprof message.

use profcol_flamegraph::{CallTree, Source, to_model};
use profcol_pprof::{Builder, Options, sets};
use prost::Message;

use crate::connect::{ConnectCode, ConnectRpcError};
use crate::messages::Profile;

impl Profile {
    pub fn of(tree: &CallTree, source: &Source) -> Result<Self, ConnectRpcError> {
        if tree.total().value == 0 {
            return Ok(Self {
                // A pprof string table starts with the empty string.
                string_table: vec![String::new()],
                ..Self::default()
            });
        }
        let model = to_model(tree, source);
        let mut builder = Builder::new(Options::default());
        for set in sets(&model) {
            builder.add(&set).map_err(|error| ConnectRpcError {
                code: ConnectCode::ResourceExhausted,
                message: format!("failed to encode the profile: {error}"),
            })?;
        }
        Self::decode(&*builder.finish()).map_err(|error| ConnectRpcError {
            code: ConnectCode::Internal,
            message: format!("failed to decode the encoded profile: {error}"),
        })
    }
}
