//! Counts of batches that are not sent.

use profcol_component::testkit::{batch, context, load};
use profcol_net::grpc::{Code, Status};

use super::*;

#[test]
fn counts_the_samples_of_dropped_batches() {
    let context = context("parca");
    let config = load("{endpoint: \"http://127.0.0.1:1\"}").unwrap();
    let parca = Parca::new(&config, &context).unwrap();
    let status = Status::new(Code::Unavailable, "the connection ended");
    let given_up = SendError::Poisoned { status };
    let refusal = parca.refused(&batch(7).profiles, given_up);
    assert!(matches!(refusal, Refusal::Permanent { .. }), "{refusal}");
    let name = "otelcol_exporter_parca_given_up_profile_samples";
    let given_up = context.meter.counter(name, "", &[("exporter", "parca")]);
    assert_eq!(given_up.get(), 7);
}
