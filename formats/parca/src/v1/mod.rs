//! The older layout: samples refer to stacks by id, and the stacks are in a separate record. A server requests the
//! stacks that it does not know.

mod samples;
mod stacks;

pub use samples::{encode_samples, read_samples};
pub use stacks::{
    Stacks, encode_stack_request, encode_stacks, encode_stacks_without_columns, read_stack_request,
};
