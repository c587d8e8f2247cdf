//! Decoding matches the generated types of `opentelemetry-proto`.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod golden;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use profcol_profile::{Counts, Profiles, Validation};
use prost::Message;

#[test]
fn recorded_requests_keep_every_field() {
    for (name, wire) in golden::requests() {
        let mut expected = ExportProfilesServiceRequest::decode(wire.clone()).unwrap();
        // Collectors write the empty value of row 0 as an empty message, which is equivalent.
        if let Some(dictionary) = &mut expected.dictionary {
            dictionary.attribute_table[0].value = None;
        }
        let received = Profiles::from_wire(wire.clone(), Validation::Reject)
            .unwrap_or_else(|invalid| panic!("{name}: {invalid}"))
            .profiles;
        assert_eq!(received.to_wire(), wire, "{name}: unchanged bytes");
        let encoded = Profiles::from_model(received.model().clone()).to_wire();
        assert!(encoded.len() <= wire.len(), "{name}: re-encoded");
        let read = ExportProfilesServiceRequest::decode(encoded.clone()).unwrap();
        assert!(read == expected, "{name}");
        let again = Profiles::from_wire(encoded, Validation::Reject)
            .unwrap()
            .profiles;
        assert!(again.model() == received.model(), "{name}");
        // The empty value takes two bytes.
        let counts = |profiles: &Profiles| Counts {
            undecoded_size: 0,
            ..profiles.counts()
        };
        assert_eq!(counts(&again), counts(&received));
        let samples = expected
            .resource_profiles
            .iter()
            .flat_map(|resource| &resource.scope_profiles)
            .flat_map(|scope| &scope.profiles)
            .map(|profile| profile.samples.len());
        assert_eq!(received.sample_count(), samples.sum::<usize>(), "{name}");
    }
}
