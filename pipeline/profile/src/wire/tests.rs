//! Handmade requests in unusual and invalid encodings, and changes of resources that keep all other bytes.

#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;

use super::Skip;
use super::decode::RowQuality;
use super::tags::{
    any_value, dictionary, list, profile, request, resource, resource_profiles, sample,
    scope_profiles, stack,
};
use crate::proto::{Writer, tag};
use crate::{
    CompressedWire, KeyValue, Merger, Model, Profiles, Reason, Resource, SharedResource,
    Validation, Value,
};

fn written(write: impl FnOnce(&mut Writer)) -> Bytes {
    let mut out = Writer::default();
    write(&mut out);
    out.into_vec().into()
}

fn receive(wire: &Bytes) -> Result<Profiles, String> {
    Profiles::from_wire(wire.clone(), Validation::Reject)
        .map(|received| received.profiles)
        .map_err(|invalid| invalid.to_string())
}

fn write_samples(out: &mut Writer, write: impl FnOnce(&mut Writer)) {
    out.nested(request::RESOURCE_PROFILES, 0, |out| {
        out.nested(resource_profiles::SCOPES, 0, |out| {
            out.nested(scope_profiles::PROFILES, 0, |out| write(out));
        });
    });
}

#[test]
fn reads_unpacked_lists() {
    let wire = written(|out| {
        write_samples(out, |out| {
            out.nested(profile::SAMPLES, 0, |out| {
                out.uint(sample::STACK, 1);
                out.uint_always(sample::VALUE, 5);
                out.packed(sample::VALUES, [6, 7].into_iter());
                out.uint_always(sample::VALUE, 8);
                for timestamp in 1..5 {
                    out.fixed64(sample::TIMESTAMP, timestamp);
                }
            });
        });
        out.nested(request::DICTIONARY, 0, |out| {
            out.bytes_always(dictionary::LOCATIONS, b"");
            out.bytes_always(dictionary::LOCATIONS, b"");
            out.bytes_always(dictionary::STACKS, b"");
            out.nested(dictionary::STACKS, 0, |out| {
                out.uint_always(stack::LOCATION, 1);
                out.uint_always(stack::LOCATION, 0);
            });
        });
    });
    let profiles = receive(&wire).unwrap();
    let model = profiles.model();
    let samples = &model.profiles().next().unwrap().samples;
    let first = samples.get(0).unwrap();
    assert_eq!(first.values, [5, 6, 7, 8]);
    assert_eq!(first.timestamps, [1, 2, 3, 4]);
    let stack = model.dictionary.stacks.get(first.stack);
    assert_eq!(stack, [1.into(), 0.into()]);
}

#[test]
fn joins_a_split_dictionary() {
    let strings = |out: &mut Writer, texts: &[&str]| {
        out.nested(request::DICTIONARY, 0, |out| {
            for text in texts {
                out.bytes_always(dictionary::STRINGS, text.as_bytes());
            }
        });
    };
    let wire = written(|out| {
        strings(out, &["", "a"]);
        out.nested(request::RESOURCE_PROFILES, 0, |_| ());
        strings(out, &["b"]);
    });
    let profiles = receive(&wire).unwrap();
    let texts: Vec<&str> = profiles.model().dictionary.strings.iter().collect();
    assert_eq!(texts, ["", "a", "b"]);
}

#[test]
fn skips_unknown_fields_between_scattered_rows() {
    let wire = written(|out| {
        out.uint_always(tag::varint(99), 7);
        out.nested(request::DICTIONARY, 0, |out| {
            out.bytes_always(dictionary::STRINGS, b"");
            out.bytes_always(tag::len(50), b"new");
            out.bytes_always(dictionary::FUNCTIONS, b"");
            out.bytes_always(dictionary::STRINGS, b"text");
        });
    });
    let profiles = receive(&wire).unwrap();
    assert_eq!(profiles.model().dictionary.strings.get(1.into()), "text");
    assert_eq!(profiles.to_wire(), wire);
}

#[test]
fn recognizes_samples_of_older_layouts() {
    let old = |out: &mut Writer, attributes: &[u64]| {
        out.nested(profile::SAMPLES, 0, |out| {
            // Fields 2 and 3 held values and attributes.
            out.packed(sample::ATTRIBUTES, [1_000_000].into_iter());
            out.packed(sample::OLD_ATTRIBUTES, attributes.iter().copied());
        });
    };
    for attributes in [&[][..], &[1, 2]] {
        let wire = written(|out| write_samples(out, |out| old(out, attributes)));
        let message = receive(&wire).unwrap_err();
        assert!(
            message.starts_with(
                "resource_profiles[0].scope_profiles[0].profiles[0].samples[0]: \
                 OTLP profiles payload looks like opentelemetry-proto <= 1.9"
            ),
            "{message}"
        );
    }
}

#[test]
fn rejects_deeply_nested_values() {
    fn nest(out: &mut Writer, depth: usize) {
        if depth > 0 {
            out.nested(any_value::ARRAY, 1 << 14, |out| {
                out.nested(list::ITEMS, 1 << 14, |out| nest(out, depth - 1));
            });
        }
    }
    let with_depth = |depth| {
        written(|out| {
            out.nested(request::RESOURCE_PROFILES, 0, |out| {
                out.nested(resource_profiles::RESOURCE, 0, |out| {
                    out.nested(resource::ATTRIBUTES, 0, |out| {
                        out.nested(super::tags::key_value::VALUE, 0, |out| nest(out, depth));
                    });
                });
            });
        })
    };
    receive(&with_depth(60)).unwrap();
    let message = receive(&with_depth(2_000)).unwrap_err();
    assert!(message.contains("nested deeper than 64 levels"));
}

#[test]
fn rejects_invalid_utf8() {
    let wire = written(|out| {
        out.nested(request::DICTIONARY, 0, |out| {
            out.bytes_always(dictionary::STRINGS, b"");
            out.bytes_always(dictionary::STRINGS, b"\xff");
        });
    });
    assert_eq!(
        receive(&wire).unwrap_err(),
        "dictionary.string_table[1]: not UTF-8"
    );
    let invalid = Profiles::from_wire(wire, Validation::Reject).err().unwrap();
    assert_eq!(invalid.reason(), Reason::Utf8);
}

/// Validation refuses these bytes; should it ever accept them, neither way to read them invents a value.
#[test]
fn invalid_text_and_ids_fail_to_decode_and_to_merge() {
    let with_table = |table, row: &[u8]| {
        written(|out| {
            out.nested(request::DICTIONARY, 0, |out| {
                out.bytes_always(table, b"");
                out.bytes_always(table, row);
            });
        })
    };
    let with_schema = written(|out| {
        out.nested(request::RESOURCE_PROFILES, 0, |out| {
            out.bytes_always(resource_profiles::SCHEMA_URL, b"\xff");
        });
    });
    let short_id = with_table(dictionary::LINKS, b"\x0a\x01\x07");
    let text = with_table(dictionary::STRINGS, b"\xff");
    for wire in [with_schema, short_id, text] {
        assert!(receive(&wire).is_err());
        assert!(super::decode(&wire, &Skip::default()).is_err());
        assert!(Merger::new().add_wire(&wire).is_err());
        let skip = Skip {
            rows: RowQuality::Repaired,
            ..Skip::default()
        };
        assert!(super::decode(&wire, &skip).is_ok());
    }
}

#[test]
fn reports_the_path_of_a_truncation() {
    let wire = Bytes::from_static(&[0x0a, 0x02, 0x12, 0x05]);
    assert_eq!(
        receive(&wire).unwrap_err(),
        "resource_profiles[0]: message truncated in the middle of a field"
    );
}

#[test]
fn changes_only_resources() {
    let wire = written(|out| {
        out.nested(request::RESOURCE_PROFILES, 0, |out| {
            out.nested(resource_profiles::RESOURCE, 0, |out| {
                out.nested(resource::ATTRIBUTES, 0, |out| {
                    out.uint(super::tags::key_value::KEY_INDEX, 1);
                });
            });
            out.bytes(resource_profiles::SCHEMA_URL, b"url");
            out.bytes(tag::len(77), b"unknown");
        });
        out.nested(request::RESOURCE_PROFILES, 0, |out| {
            out.bytes(resource_profiles::SCHEMA_URL, b"second");
        });
        out.nested(request::DICTIONARY, 0, |out| {
            out.bytes_always(dictionary::STRINGS, b"");
            out.bytes_always(dictionary::STRINGS, b"key");
        });
    });
    let received = receive(&wire).unwrap();
    let decoded = Profiles::from_model(received.model().clone());
    for (mut profiles, is_as_it_came) in [(received.clone(), true), (decoded, false)] {
        let compressed = Bytes::from_static(b"compressed");
        profiles = profiles.with_compressed(CompressedWire {
            encoding: "gzip",
            bytes: compressed.clone(),
            decompress: |_, _, _| None,
        });

        let mut shown = Vec::new();
        profiles.for_each_resource(|resource| shown.push(resource.clone()));
        let rows = profiles.model().resources.iter();
        let rows: Vec<_> = rows
            .map(|row| row.resource.as_deref().cloned().unwrap_or_default())
            .collect();
        assert_eq!(shown, rows);

        profiles.update_resources(|_| false);
        let kept = is_as_it_came.then_some(&compressed);
        assert_eq!(profiles.compressed().map(|it| &it.bytes), kept);

        profiles.update_resources(|resource| {
            let first = !resource.attributes.is_empty();
            if first {
                resource.attributes.push(KeyValue::new("pod", "a"));
            }
            first
        });
        assert!(profiles.compressed().is_none());
        let expected = Resource {
            attributes: vec![
                KeyValue {
                    key: "key".into(),
                    value: Value::Empty,
                },
                KeyValue::new("pod", "a"),
            ],
            ..Resource::default()
        };
        let resources = &profiles.model().resources;
        assert_eq!(resources[0].resource.as_deref(), Some(&expected));
        assert_eq!(&*resources[0].schema_url, "url");
        assert_eq!(resources[1], received.model().resources[1]);
        assert_eq!(profiles.model().dictionary, received.model().dictionary);
    }
    let mut changed = received.clone();
    changed.update_resources(|_| true);
    let kept = changed.to_wire();
    assert!(kept.windows(7).any(|bytes| bytes == b"unknown"));
    assert_eq!(received.to_wire(), wire, "the other handle");
}

#[test]
fn resource_changes_are_encoded_once() {
    let wire = written(|out| {
        for url in [b"first", b"other"] {
            out.nested(request::RESOURCE_PROFILES, 0, |out| {
                out.bytes(resource_profiles::SCHEMA_URL, url);
            });
        }
    });
    let add = |profiles: &mut Profiles, row: usize, key: &str| {
        let mut rows = 0..;
        profiles.update_resources(|resource| {
            let is_it = rows.next() == Some(row);
            if is_it {
                resource.attributes.push(KeyValue::new(key, 1));
            }
            is_it
        });
    };
    let keys = |profiles: &Profiles| {
        let mut keys = Vec::new();
        profiles.for_each_resource(|resource| {
            let own = resource.attributes.iter().map(|it| it.key.to_string());
            keys.push(own.collect::<Vec<_>>());
        });
        let rows = profiles.model().resources.iter();
        let decoded = rows.map(|row| match &row.resource {
            Some(resource) => resource
                .attributes
                .iter()
                .map(|it| it.key.to_string())
                .collect(),
            None => Vec::new(),
        });
        assert_eq!(keys, decoded.collect::<Vec<Vec<_>>>());
        assert_eq!(keys.len(), 2);
        keys.concat()
    };
    let received = receive(&wire).unwrap();
    let mut changed = received.clone();
    add(&mut changed, 0, "a");
    let other = changed.clone();
    add(&mut changed, 1, "b");
    changed.update_resources(|_| false);
    add(&mut changed, 0, "c");
    let mut waiting = changed.clone();
    waiting.keep_for(None);

    assert_eq!(received.to_wire(), wire);
    assert!(keys(&received).is_empty());
    assert_eq!(keys(&other), ["a"]);
    assert_eq!(keys(&changed), ["a", "c", "b"]);
    assert_eq!(waiting.to_wire(), changed.to_wire());
    assert!(waiting.heap_size() < changed.heap_size());
    let merged = Profiles::merge([other.clone(), changed.clone()]);
    assert_eq!(
        merged.model(),
        Profiles::merge([receive(&other.to_wire()).unwrap(), waiting]).model()
    );
}

#[test]
fn large_slices_are_not_copied_when_resources_are_replaced() {
    let wire = written(|out| {
        for size in [10, 10_000] {
            out.nested(request::RESOURCE_PROFILES, 0, |out| {
                out.nested(resource_profiles::RESOURCE, 0, |out| {
                    out.bytes(tag::len(50), b"old");
                });
                out.bytes(tag::len(77), &vec![b'x'; size]);
            });
        }
        out.nested(request::DICTIONARY, 0, |out| {
            out.bytes(tag::len(77), &[b'y'; 20_000]);
        });
    });
    let mut changed = receive(&wire).unwrap();
    let old = changed.resources();
    assert!(old[0] == old[1] && old[0].content() == Resource::default().into());
    let new = SharedResource::new(Resource {
        attributes: vec![KeyValue::new("pod", "a")],
        ..Resource::default()
    });
    changed.replace_resources(vec![None, Some(new.clone())]);
    assert!(changed.resources() == [old[0].clone(), new]);
    for closed in [false, true] {
        if closed {
            changed.keep_for(None);
        }
        let pieces = changed.to_pieces();
        let inside = |piece: &&Bytes| wire.as_ptr_range().contains(&piece.as_ptr());
        let kept: Vec<usize> = pieces.iter().filter(inside).map(Bytes::len).collect();
        assert_eq!(kept, [10_004, 20_005], "with their tags and lengths");
        assert_eq!(changed.encoded_len(), pieces.concat().len());
        assert_eq!(changed.clone().to_wire(), pieces.concat());
    }
    let decoded = receive(&changed.to_wire()).unwrap();
    assert_eq!(decoded.model(), changed.model());
    let resource = decoded.model().resources[1].resource.clone().unwrap();
    assert_eq!(resource.attributes, [KeyValue::new("pod", "a")]);
}

#[test]
fn equal_resources_are_equal_in_any_form() {
    use std::hash::BuildHasher;
    let attributes = vec![KeyValue::new("a", "x"), KeyValue::new("b", 7)];
    let made = SharedResource::new(Resource {
        attributes,
        ..Resource::default()
    });
    let model = Model {
        resources: vec![crate::ResourceProfiles {
            resource: Some(made.content()),
            ..Default::default()
        }],
        ..Model::default()
    };
    let profiles = Profiles::from_model(model);
    let read = receive(&profiles.to_wire()).unwrap().resources();
    let kept = read[0].unshared();
    let state = foldhash::fast::RandomState::default();
    for same in [&read[0], &kept, &profiles.resources()[0]] {
        assert!(*same == made && same.content() == made.content());
        assert_eq!(state.hash_one(same), state.hash_one(&made));
    }
    assert_ne!(kept.wire().as_ptr(), read[0].wire().as_ptr());
}

#[test]
fn keep_for_keeps_one_form_and_restores_others_on_demand() {
    let wire = written(|out| {
        write_samples(out, |out| {
            out.nested(profile::SAMPLES, 0, |out| {
                out.packed(sample::VALUES, [1].into_iter())
            });
        });
        out.bytes_always(tag::len(50), &[b' '; 1000]);
    });
    let received_bytes = || {
        receive(&wire).unwrap().with_compressed(CompressedWire {
            encoding: "cut",
            bytes: wire.slice(..wire.len() - 1000),
            decompress: |encoding, bytes, len| {
                assert_eq!(encoding, "cut");
                let mut plain = bytes.to_vec();
                plain.resize(len, b' ');
                Some(plain.into())
            },
        })
    };
    let check = |encoding: Option<&str>, compressed: bool, spared: usize| {
        let mut kept = received_bytes();
        kept.keep_for(encoding);
        assert_eq!(kept.compressed().is_some(), compressed, "{encoding:?}");
        assert_eq!(kept.encoded_len(), wire.len(), "{encoding:?}");
        assert_eq!(kept.counts(), received_bytes().counts(), "{encoding:?}");
        assert_eq!(
            kept.heap_size() + spared,
            received_bytes().heap_size(),
            "{encoding:?}"
        );
        assert_eq!(kept.model(), received_bytes().model(), "{encoding:?}");
        assert_eq!(kept.to_wire(), wire, "{encoding:?}");
    };
    check(Some("cut"), true, wire.len());
    check(Some("other"), false, wire.len() - 1000);
    check(None, false, wire.len() - 1000);
}
