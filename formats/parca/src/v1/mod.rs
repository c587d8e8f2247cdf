//! The older layout: samples refer to stacks by their ids, and the stacks are a record of their own,
//! of which a server asks for those that it does not know.

mod samples;
mod stacks;

pub use samples::{encode_samples, read_samples};
pub use stacks::{
    Stacks, encode_stacks, encode_stacks_without_columns, encode_wanted, read_wanted,
};
