//! Arbitrary files and models keep their meaning when read and written, and damaged files never cause a panic.

mod arbitrary;
mod go_tool;
mod late;
mod oracle;
mod reading;
mod writing;

use proptest::prelude::*;

use super::{LabelSelection, Limits, ProfileSet, gzip, read, sets, write};
use oracle::{Meaning, meaning};
use profcol_profile::{Model, Profiles, Validation};

/// The meaning of the file written from `model`.
fn written(model: &Model, labels: LabelSelection) -> Meaning {
    meaning(&write(sets(model), labels).expect("the sample types are the same"))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn writes_what_it_read(file in arbitrary::file()) {
        let model = read(&gzip(&file), Limits::default()).expect("valid");
        prop_assert_eq!(sets(&model).count(), 1);
        prop_assert_eq!(written(&model, LabelSelection::default()), meaning(&file));

        let otlp = Profiles::from_model(model).to_wire();
        let valid = Profiles::from_wire(otlp, Validation::Reject).map(drop);
        prop_assert!(valid.is_ok(), "{}", valid.expect_err("checked above"));
    }

    #[test]
    fn any_model_can_be_written_and_read_back(model in profcol_profile::testkit::models()) {
        for set in sets(&model) {
            let file = write([set.clone()], LabelSelection::default()).expect("a single set");
            let read = read(&file, Limits::default()).expect("written above");
            prop_assert_eq!(written(&read, LabelSelection::default()), meaning(&file));
            let samples = set.profiles[0].samples.len();
            prop_assert!(read.sample_count() <= samples * set.profiles.len());
        }
    }

    #[test]
    fn survives_any_changed_byte(file in arbitrary::file(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut changed = file.clone();
        changed[at.index(file.len())] = byte;
        let limits = Limits { file_bytes: 1 << 20, model_bytes: 1 << 20 };
        for broken in [&changed[..], &file[..at.index(file.len())]] {
            if let Ok(model) = read(broken, limits) {
                let otlp = Profiles::from_model(model).to_wire();
                prop_assert!(Profiles::from_wire(otlp, Validation::Reject).is_ok());
            }
        }
    }
}
