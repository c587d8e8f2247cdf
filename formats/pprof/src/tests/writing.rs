//! Handmade models, written and read by the independent reader: values, labels, mappings, sample types, and sums.

use std::sync::Arc;

use super::oracle::{Labels, Meaning, meaning};
use super::{ProfileSet, sets, write, written};
use crate::{AddProfilesError, Builder, Keys, LabelSelection, Options};
use profcol_profile::{
    Attribute, AttributeIdx, Dictionary, Function, KeyValue, Line, Link, Location, LocationRef,
    Mapping, MappingRef, Model, Profile, Resource, ResourceProfiles, SampleRef, Samples,
    ScopeProfiles, StackIdx, Value, ValueType,
};

/// A model under construction: one resource, one scope, stacks of one function each.
#[derive(Default)]
struct Batch {
    tables: Dictionary,
    resource: Resource,
    profiles: Vec<Profile>,
}

impl Batch {
    fn attribute(&mut self, key: &str, value: impl Into<Value>, unit: &str) -> AttributeIdx {
        let row = Attribute {
            key: self.tables.strings.push(key),
            value: value.into(),
            unit: self.tables.strings.push(unit),
        };
        self.tables.attributes.push(row)
    }

    fn stack(&mut self, function: &str) -> StackIdx {
        let name = self.tables.strings.push(function);
        let function = self.tables.functions.push(Function {
            name,
            ..Function::default()
        });
        let location = self.tables.locations.push(LocationRef {
            location: Location::default(),
            lines: &[Line {
                function,
                ..Line::default()
            }],
            attributes: &[],
        });
        self.tables.stacks.push(&[location])
    }

    fn profile(&mut self, kind: &str, samples: &[SampleRef<'_>]) -> &mut Profile {
        let mut columns = Samples::default();
        for sample in samples {
            columns.push(*sample);
        }
        self.profiles.push(Profile {
            sample_type: Some(ValueType {
                kind: self.tables.strings.push(kind),
                unit: self.tables.strings.push("count"),
            }),
            samples: columns,
            ..Profile::default()
        });
        let last = self.profiles.len() - 1;
        &mut self.profiles[last]
    }

    fn model(self) -> Model {
        let profiles = self.profiles.into_iter().map(Arc::new).collect();
        Model {
            dictionary: Arc::new(self.tables),
            resources: vec![ResourceProfiles {
                resource: Some(Arc::new(self.resource)),
                scopes: vec![ScopeProfiles {
                    profiles,
                    ..ScopeProfiles::default()
                }],
                ..ResourceProfiles::default()
            }],
        }
    }
}

/// The leaf function, labels and values of each sample.
fn rows(meaning: &Meaning) -> Vec<(&str, &Labels, &[i64])> {
    let rows = meaning.samples.iter();
    rows.map(|((stack, labels), values)| (stack[0].lines[0].name.as_str(), labels, &values[..]))
        .collect()
}

fn sample<'a>(stack: StackIdx, values: &'a [i64], timestamps: &'a [u64]) -> SampleRef<'a> {
    SampleRef {
        stack,
        values,
        timestamps,
        ..SampleRef::default()
    }
}

fn text(key: &str, value: &str) -> (String, String, i64, String) {
    (key.to_owned(), value.to_owned(), 0, String::new())
}

fn number(key: &str, value: i64, unit: &str) -> (String, String, i64, String) {
    (key.to_owned(), String::new(), value, unit.to_owned())
}

#[test]
fn adds_up_sample_values() {
    #[track_caller]
    fn check(samples: &[(&[i64], &[u64])], expected: i64) {
        let mut batch = Batch::default();
        let stack = batch.stack("f");
        let samples: Vec<_> = samples
            .iter()
            .map(|(values, timestamps)| sample(stack, values, timestamps))
            .collect();
        batch.profile("samples", &samples);
        let meaning = written(&batch.model(), LabelSelection::default());
        assert_eq!(rows(&meaning), [("f", &vec![], &[expected][..])]);
    }
    check(&[(&[], &[7, 8, 9])], 3);
    check(&[(&[5], &[])], 5);
    check(&[(&[5, 6], &[7, 8])], 11);
    check(&[(&[5], &[]), (&[], &[1]), (&[-2], &[1])], 4);
    check(&[(&[i64::MAX], &[]), (&[1], &[])], i64::MAX);
}

#[test]
fn turns_attributes_into_labels() {
    #[track_caller]
    fn check(value: impl Into<Value>, unit: &str, expected: &[(&str, i64, &str)]) {
        let mut batch = Batch::default();
        let attribute = batch.attribute("k", value, unit);
        let stack = batch.stack("f");
        let sample = SampleRef {
            attributes: &[attribute],
            ..sample(stack, &[1], &[])
        };
        batch.profile("samples", &[sample]);
        let mut labels: Labels = expected
            .iter()
            .map(|&(text, number, unit)| ("k".to_owned(), text.to_owned(), number, unit.to_owned()))
            .collect();
        labels.sort();
        let meaning = written(&batch.model(), LabelSelection::default());
        assert_eq!(rows(&meaning), [("f", &labels, &[1][..])]);
    }
    check("v", "", &[("v", 0, "")]);
    check("", "", &[]);
    check(Value::Empty, "", &[]);
    check(5, "bytes", &[("", 5, "bytes")]);
    check(0, "bytes", &[("", 0, "bytes")]);
    check(-1, "", &[("", -1, "")]);
    // Readers could not distinguish the number 0 without a unit from a missing label.
    check(0, "", &[("0", 0, "")]);
    check(true, "", &[("true", 0, "")]);
    check(Value::Double(0.5), "", &[("0.5", 0, "")]);
    check(Value::Bytes([0xff].into()), "", &[("/w==", 0, "")]);
    check(
        Value::Array(["a".into(), 5.into(), "a".into()].into()),
        "",
        &[("a", 0, ""), ("a", 0, ""), ("", 5, "")],
    );
    check(
        Value::Map([KeyValue::new("x", 1)].into()),
        "",
        &[(
            r#"{"kvlistValue":{"values":[{"key":"x","value":{"intValue":"1"}}]}}"#,
            0,
            "",
        )],
    );
}

/// A batch with attributes on the resource, the profile, the sample and the link.
fn labelled() -> Model {
    let mut batch = Batch::default();
    batch.resource.attributes = vec![KeyValue::new("pid", 7), KeyValue::new("who", "resource")];
    let of_profile = batch.attribute("who", "profile", "");
    let of_profile_too = batch.attribute("host", "h", "");
    let comment = batch.attribute("pprof.profile.comment", "not a label", "");
    let of_sample = batch.attribute("host", "sample's", "");
    let link = batch.tables.links.push(Link {
        trace_id: [0xab; 16],
        span_id: [1; 8],
    });
    let stack = batch.stack("f");
    let linked = SampleRef {
        link,
        attributes: &[of_sample],
        ..sample(stack, &[1], &[])
    };
    let profile = batch.profile("samples", &[linked, sample(stack, &[2], &[])]);
    profile.attributes = vec![of_profile, of_profile_too, comment];
    batch.model()
}

#[test]
fn the_most_specific_selected_label_wins() {
    #[track_caller]
    fn check(labels: LabelSelection, expected: &[(&[Labels], i64)]) {
        let meaning = written(&labelled(), labels);
        let mut expected: Vec<(Labels, i64)> = expected
            .iter()
            .map(|(labels, value)| (labels.concat(), *value))
            .collect();
        for (labels, _) in &mut expected {
            labels.sort();
        }
        expected.sort();
        let rows = rows(&meaning).into_iter();
        let labels: Vec<_> = rows
            .map(|(_, labels, values)| (labels.clone(), values[0]))
            .collect();
        assert_eq!(labels, expected);
        assert_eq!(meaning.comments, ["not a label"]);
    }
    let trace = vec![
        text("trace_id", &"ab".repeat(16)),
        text("span_id", &"01".repeat(8)),
    ];
    let shared = vec![number("pid", 7, ""), text("who", "profile")];
    check(
        LabelSelection::default(),
        &[
            (
                &[
                    shared.clone(),
                    trace.clone(),
                    vec![text("host", "sample's")],
                ],
                1,
            ),
            (&[shared, vec![text("host", "h")]], 2),
        ],
    );
    let none = LabelSelection {
        resource: Keys::none(),
        profile: Keys::none(),
        sample: Keys::none(),
        links: false,
    };
    check(none.clone(), &[(&[], 3)]);
    check(
        LabelSelection {
            resource: Keys::AllBut(["pid".to_owned()].into()),
            ..none.clone()
        },
        &[(&[vec![text("who", "resource")]], 3)],
    );
    check(
        LabelSelection {
            sample: Keys::Only(["host".to_owned()].into()),
            ..none.clone()
        },
        &[(&[vec![text("host", "sample's")]], 1), (&[], 2)],
    );
    check(
        LabelSelection {
            links: true,
            ..none
        },
        &[(&[trace], 1), (&[], 2)],
    );
}

#[test]
fn an_unnamed_service_does_not_become_a_label() {
    #[track_caller]
    fn check(name: &str, expected: &[Labels]) {
        let mut batch = Batch::default();
        batch.resource.attributes = vec![KeyValue::new("service.name", name)];
        let stack = batch.stack("f");
        batch.profile("samples", &[sample(stack, &[1], &[])]);
        let meaning = written(&batch.model(), LabelSelection::default());
        assert_eq!(*rows(&meaning)[0].1, expected.concat());
    }
    check("shop", &[vec![text("service.name", "shop")]]);
    check("unknown_service", &[]);
    check("unknown_service:python3", &[]);
}

#[test]
fn marks_a_mapping_as_symbolized_if_one_location_is() {
    #[track_caller]
    fn check(lines: &[&[(&str, i64)]], attributes: &[(&str, bool)], expected: [bool; 4]) {
        let mut batch = Batch::default();
        let attributes: Vec<_> = attributes
            .iter()
            .map(|(key, flag)| batch.attribute(key, *flag, ""))
            .collect();
        let tables = &mut batch.tables;
        let filename = tables.strings.push("a.c");
        let mapping = tables.mappings.push(MappingRef {
            mapping: Mapping {
                filename,
                ..Mapping::default()
            },
            attributes: &attributes,
        });
        let mut stack = Vec::new();
        for (address, lines) in (1..).zip(lines) {
            let lines: Vec<Line> = lines
                .iter()
                .map(|&(name, line)| Line {
                    function: tables.functions.push(Function {
                        name: tables.strings.push(name),
                        filename,
                        ..Function::default()
                    }),
                    line,
                    column: 0,
                })
                .collect();
            stack.push(tables.locations.push(LocationRef {
                location: Location { mapping, address },
                lines: &lines,
                attributes: &[],
            }));
        }
        let stack = tables.stacks.push(&stack);
        batch.profile("samples", &[sample(stack, &[1], &[])]);
        let meaning = written(&batch.model(), LabelSelection::default());
        let ((frames, _), _) = meaning.samples.first_key_value().expect("one sample");
        for frame in frames {
            let mapping = frame.mapping.as_ref().expect("has a mapping");
            assert_eq!(mapping.flags, expected, "{lines:?}");
        }
    }
    check(&[&[("f", 1)], &[("g", 2)]], &[], [true, true, true, false]);
    check(&[&[("f", 1), ("g", 2)]], &[], [true, true, true, true]);
    check(&[&[("f", 0)], &[("g", 0)]], &[], [true, true, false, false]);
    check(&[&[("f", 0)], &[("g", 2)]], &[], [true, true, true, false]);
    check(&[&[("f", 1)], &[]], &[], [true, true, true, false]);
    check(&[&[], &[]], &[], [false; 4]);
    check(
        &[&[]],
        &[("pprof.mapping.has_functions", true)],
        [true, false, false, false],
    );
    check(
        &[&[("f", 1)]],
        &[("pprof.mapping.has_filenames", false)],
        [true, false, true, false],
    );
}

/// One sample per file, in a process of this executable.
fn process(executable: &[(&str, &str)], files: &[&str]) -> Model {
    let mut batch = Batch::default();
    let attributes = executable.iter();
    batch.resource.attributes = attributes
        .map(|&(key, value)| KeyValue::new(key, value))
        .collect();
    let tables = &mut batch.tables;
    let mut stack = Vec::new();
    for file in files {
        let filename = tables.strings.push(file);
        let mapping = tables.mappings.push(MappingRef {
            mapping: Mapping {
                filename,
                ..Mapping::default()
            },
            attributes: &[],
        });
        stack.push(tables.locations.push(LocationRef {
            location: Location {
                mapping,
                address: 1,
            },
            lines: &[],
            attributes: &[],
        }));
    }
    let stack = tables.stacks.push(&stack);
    batch.profile("samples", &[sample(stack, &[1], &[])]);
    batch.model()
}

#[test]
fn the_first_mapping_is_the_common_executable_or_a_placeholder() {
    const PATH: &str = "process.executable.path";
    const NAME: &str = "process.executable.name";
    const FILES: &[&str] = &["vmlinux", "/lib/libc.so.6", "/bin/a", "/bin/b"];
    #[track_caller]
    fn check(models: &[Model], expected: &str) {
        let file = write(models.iter().flat_map(sets), LabelSelection::default());
        let meaning = meaning(&file.expect("the sample types are the same"));
        assert_eq!(meaning.first_mapping.as_deref(), Some(expected));
        // Each location keeps its mapping.
        for (frames, _) in meaning.samples.into_keys() {
            let files = frames.into_iter().map(|frame| frame.mapping);
            let files: Vec<_> = files
                .map(|file| file.expect("has a mapping").filename)
                .collect();
            assert_eq!(files, FILES);
        }
    }
    let a = || process(&[(PATH, "/bin/a"), (NAME, "a")], FILES);
    check(&[a()], "/bin/a");
    check(&[a(), a()], "/bin/a");
    check(&[process(&[(NAME, "b")], FILES)], "/bin/b");
    check(&[process(&[(PATH, "/proc/1/root/bin/b")], FILES)], "/bin/b");
    check(&[process(&[(NAME, "kworker/0:1")], FILES)], "kworker/0:1");
    check(
        &[a(), process(&[(PATH, "/bin/b")], FILES)],
        "[multiple executables]",
    );
    check(&[a(), process(&[], FILES)], "[multiple executables]");
    // Without an executable the first mapping stays first.
    check(&[process(&[], FILES)], "vmlinux");
}

#[test]
fn writes_the_period_weight_of_counted_samples() {
    #[track_caller]
    fn check(change: fn(&mut Batch), expected: &[(&str, &str)], values: &[i64], default: &str) {
        let mut batch = Batch::default();
        let stack = batch.stack("f");
        let period_type = ValueType {
            kind: batch.tables.strings.push("cpu"),
            unit: batch.tables.strings.push("nanoseconds"),
        };
        let profile = batch.profile("samples", &[sample(stack, &[], &[1, 2, 3])]);
        profile.period_type = Some(period_type);
        profile.period = 10;
        change(&mut batch);
        let options = Options {
            period_values: true,
            ..Options::default()
        };
        let model = batch.model();
        let meaning = meaning(&write(sets(&model), options).expect("a single set"));
        let types = meaning.sample_types.iter();
        let types: Vec<_> = types.map(|(kind, unit)| (&**kind, &**unit)).collect();
        assert_eq!(types, expected);
        assert_eq!(rows(&meaning)[0].2, values);
        assert_eq!(meaning.default_sample_type, default);
    }
    let both = &[("samples", "count"), ("cpu", "nanoseconds")];
    let alone = &[("samples", "count")];
    check(|_| {}, both, &[3, 30], "cpu");
    check(
        |batch| batch.profiles[0].period = i64::MAX,
        both,
        &[3, i64::MAX],
        "cpu",
    );
    check(|batch| batch.profiles[0].period = 0, alone, &[3], "");
    check(|batch| batch.profiles[0].period = -1, alone, &[3], "");
    check(
        |batch| batch.profiles[0].period_type = None,
        alone,
        &[3],
        "",
    );
    // The period only weighs samples of its own unit: for allocations it is the bytes between objects.
    check(
        |batch| {
            let kind = batch.tables.strings.push("inuse_objects");
            batch.profiles[0].sample_type.as_mut().unwrap().kind = kind;
        },
        &[("inuse_objects", "count")],
        &[3],
        "",
    );
    // Measured time takes precedence.
    check(
        |batch| {
            let measured = batch.profile("cpu", &[sample(1.into(), &[7], &[])]).clone();
            let counted = Profile {
                samples: measured.samples.clone(),
                ..batch.profiles[0].clone()
            };
            batch.profiles = vec![
                counted.clone(),
                Profile {
                    sample_type: measured.sample_type,
                    ..counted
                },
            ];
        },
        &[("samples", "count"), ("cpu", "count")],
        &[7, 7],
        "samples",
    );
}

#[test]
fn gives_every_line_a_function() {
    let mut batch = Batch::default();
    let location = batch.tables.locations.push(LocationRef {
        location: Location::default(),
        lines: &[
            Line {
                line: 5,
                ..Line::default()
            },
            Line::default(),
        ],
        attributes: &[],
    });
    let stack = batch.tables.stacks.push(&[location]);
    batch.profile("samples", &[sample(stack, &[1], &[])]);
    // Computing the meaning looks up the functions.
    let meaning = written(&batch.model(), LabelSelection::default());
    let ((frames, _), _) = meaning.samples.first_key_value().expect("one sample");
    assert_eq!(frames[0].lines.len(), 1);
    assert_eq!(
        (frames[0].lines[0].line, &*frames[0].lines[0].name),
        (5, "")
    );
}

#[test]
fn groups_profiles_that_line_up() {
    #[track_caller]
    fn check(change: fn(&mut Profile), expected: &[&[&str]]) {
        let mut batch = Batch::default();
        let (f, g) = (batch.stack("f"), batch.stack("g"));
        let samples = [sample(f, &[1], &[]), sample(g, &[2], &[])];
        batch.profile("a", &samples);
        batch.profile("b", &samples);
        change(batch.profile("c", &samples));
        let model = batch.model();
        let groups: Vec<Vec<&str>> = sets(&model)
            .map(|set| set.sample_types().map(|(kind, _)| kind).collect())
            .collect();
        assert_eq!(groups, expected);
    }
    check(|_| {}, &[&["a", "b", "c"]]);
    let apart: &[&[&str]] = &[&["a", "b"], &["c"]];
    check(|profile| profile.period = 1, apart);
    check(|profile| profile.time_unix_nano = 1, apart);
    check(
        |profile| profile.samples.push(sample(1.into(), &[1], &[])),
        apart,
    );
    check(
        |profile| {
            let mut samples = Samples::default();
            samples.push(sample(1.into(), &[], &[1]));
            samples.push(sample(2.into(), &[], &[1]));
            profile.samples = samples;
        },
        apart,
    );
    check(
        |profile| {
            let mut samples = Samples::default();
            samples.push(sample(2.into(), &[1], &[]));
            samples.push(sample(1.into(), &[1], &[]));
            profile.samples = samples;
        },
        apart,
    );
}

#[test]
fn shows_the_first_profile_of_a_native_batch_by_default() {
    let mut batch = Batch::default();
    let stack = batch.stack("f");
    batch.profile("a", &[sample(stack, &[1], &[])]);
    batch.profile("b", &[sample(stack, &[2], &[])]);
    let meaning = written(&batch.model(), LabelSelection::default());
    assert_eq!(meaning.default_sample_type, "a");
    assert_eq!(rows(&meaning), [("f", &vec![], &[1, 2][..])]);
}

#[test]
fn adds_up_batches() {
    let batch = |function: &str, value, time, extra: &str| {
        let mut batch = Batch::default();
        // Makes the rows differ between batches.
        batch.tables.strings.push(extra);
        batch.stack(extra);
        let comment = batch.attribute("pprof.profile.comment", extra, "");
        let stack = batch.stack(function);
        let values = [value];
        let profile = batch.profile("samples", &[sample(stack, &values, &[])]);
        profile.time_unix_nano = time;
        profile.duration_nano = 50;
        profile.period = time as i64;
        profile.attributes = vec![comment];
        batch.model()
    };
    let mut builder = Builder::new(LabelSelection::default());
    assert!(builder.is_empty());
    for (function, value, time, extra) in [
        ("f", 1, 200, "x"),
        ("g", 10, 100, "y"),
        ("f", 100, 300, "x"),
        ("f", 1_000, 0, "z"),
    ] {
        let model = batch(function, value, time, extra);
        let set = ProfileSet::single(&model, 0, 0, 0).expect("present");
        builder.add(&set).expect("same type");
    }
    assert_eq!(builder.sample_count(), 2);
    let before = builder.heap_size();
    let model = batch("f", 1, 200, "x");
    builder
        .add(&ProfileSet::single(&model, 0, 0, 0).expect("present"))
        .expect("same type");
    assert_eq!(builder.heap_size(), before, "no new rows");

    let meaning = meaning(&builder.finish());
    assert_eq!(
        rows(&meaning),
        [("f", &vec![], &[1_102][..]), ("g", &vec![], &[10][..])]
    );
    assert_eq!(meaning.time_and_duration, (100, 250));
    assert_eq!(meaning.period, 300);
    assert_eq!(meaning.comments, ["x", "y", "z"]);
}

#[test]
fn rejects_other_types() {
    let model = |kind: &str, period: &str| {
        let mut batch = Batch::default();
        let period_type = ValueType {
            kind: batch.tables.strings.push(period),
            unit: batch.tables.strings.push("ns"),
        };
        let stack = batch.stack("f");
        batch.profile(kind, &[sample(stack, &[1], &[])]).period_type = Some(period_type);
        batch.model()
    };
    let mut builder = Builder::default();
    let mut add = |model: &Model| {
        let set = sets(model).next().expect("present");
        builder.add(&set)
    };
    assert_eq!(add(&model("a", "cpu")), Ok(()));
    assert_eq!(
        add(&model("b", "cpu")),
        Err(AddProfilesError::SampleTypes {
            found: "b/count".to_owned(),
            expected: "a/count".to_owned()
        })
    );
    assert_eq!(
        add(&model("a", "wall")),
        Err(AddProfilesError::PeriodType {
            found: "wall/ns".to_owned(),
            expected: "cpu/ns".to_owned()
        })
    );
    assert_eq!(add(&model("a", "cpu")), Ok(()));
    assert_eq!(builder.sample_count(), 1);
}
