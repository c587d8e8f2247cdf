//! The answer to a batch, and the options that are refused.

use profcol_component::testkit::{batch, context, load};

use super::*;

#[tokio::test]
async fn takes_a_batch() {
    let exporter = ExporterName::build(&load("{message: Seen}").unwrap(), &context("exporter_name")).unwrap();
    assert!(exporter.export(&batch(3)).await.is_ok());
}

#[test]
fn refuses_an_empty_message() {
    let error = load::<ExporterNameConfig>("{message: ''}").unwrap_err();
    assert!(error.contains("must not be empty"), "{error}");
}
