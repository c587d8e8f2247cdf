//! What receivers of files do with a batch that exporters gave up on: the option `when_undelivered`.

use profcol_config::Problems;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenUndelivered {
    #[default]
    Retry,
    Leave,
}

impl WhenUndelivered {
    pub fn validate(self, follow: bool, problems: &mut Problems) {
        if follow && self == Self::Leave {
            problems.add("when_undelivered", "`leave` requires `follow: false`");
        }
    }
}
