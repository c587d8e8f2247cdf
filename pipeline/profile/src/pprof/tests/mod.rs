mod arbitrary;
mod oracle;

use proptest::prelude::*;

use super::{LabelSelection, Limits, gzip, read, sets, write};
use crate::{Profiles, Validation};
use oracle::meaning;

proptest! {
    #[test]
    fn writes_what_it_read(file in arbitrary::file()) {
        let model = read(&gzip(&file), Limits::default()).expect("is valid");
        let sets: Vec<_> = sets(&model).collect();
        prop_assert_eq!(sets.len(), 1);
        let written = write(sets, LabelSelection::default()).expect("is one set");
        prop_assert_eq!(meaning(&written), meaning(&file));

        let otlp = Profiles::from_model(model).to_wire();
        let valid = Profiles::from_wire(otlp, Validation::Reject).map(drop);
        prop_assert!(valid.is_ok(), "{}", valid.expect_err("was checked"));
    }
}
