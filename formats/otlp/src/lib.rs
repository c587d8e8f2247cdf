//! OTLP beyond the protobuf encoding, which `profcol-profile` has because a batch keeps its received bytes: the JSON
//! encoding, and the paths and response of the export service.

pub mod json;
pub mod service;
