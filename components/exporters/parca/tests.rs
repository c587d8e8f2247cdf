//! What is counted of batches that are not sent.

use profcol_component::testkit::{batch, context, load};
use profcol_net::grpc::{Code, Status};

use super::*;

#[test]
fn counts_the_samples_of_batches_that_it_gives_up() {
    let context = context("parca");
    let config = load("{endpoint: \"http://127.0.0.1:1\"}").unwrap();
    let parca = Parca::new(&config, &context).unwrap();
    let count = |name: &str| {
        let name = format!("otelcol_exporter_parca_{name}_profile_samples");
        let labels = &[("exporter", "parca")];
        context.meter.counter(&name, "", labels).get()
    };
    let status = Status::new(Code::Unavailable, "the connection ended");
    let given_up = SendError::Poisoned { status };
    let refusal = parca.refused(&batch(7).profiles, given_up);
    assert!(matches!(refusal, Refusal::Permanent { .. }), "{refusal}");
    assert_eq!((count("given_up"), count("fatal")), (7, 0));
}
