//! A call tree as a pprof message.

use profcol_flamegraph::{CallTree, Source, to_model};
use profcol_pprof::{Builder, Options, sets};
use prost::Message;

use crate::connect::{Code, Failure};
use crate::messages::Profile;

impl Profile {
    pub fn of(tree: &CallTree, source: &Source) -> Result<Self, Failure> {
        if tree.total().value == 0 {
            return Ok(Self {
                // The first text of a pprof is the empty one.
                string_table: vec![String::new()],
                ..Self::default()
            });
        }
        let model = to_model(tree, source);
        let mut builder = Builder::new(Options::default());
        for set in sets(&model) {
            builder.add(&set).map_err(|error| Failure {
                code: Code::ResourceExhausted,
                message: format!("the profile cannot be written: {error}"),
            })?;
        }
        Self::decode(&*builder.finish()).map_err(|error| Failure {
            code: Code::Internal,
            message: format!("the profile that was written cannot be read: {error}"),
        })
    }
}
