//! Records that claim more than their bytes can hold, and contradictory ones.

#[expect(dead_code, reason = "each test uses only some of the helpers")]
mod records;

use std::sync::Arc;

use arrow_array::types::{Int32Type, UInt32Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, DictionaryArray, Int32Array, Int64Array, ListViewArray,
    RecordBatch, RunArray, UInt32Array,
};
use arrow_buffer::ScalarBuffer;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{Field, Schema};
use profcol_parca::ipc::{self, BadRecord};
use profcol_parca::v1::Stacks;
use profcol_parca::{RecordError, read_samples, to_model};
use profcol_profile::testkit::model_of;
use profcol_profile::{
    CheckOptions, Dictionary, Line, Location, LocationRef, Mapping, MappingRef, Model, Profile,
    Profiles, ResourceProfiles, SampleRef, Samples, ScopeProfiles, check,
};
use records::{LIMIT, encode_v1, encode_v2};

fn read(record: &[u8]) -> RecordBatch {
    let batch = ipc::read(record, LIMIT).expect("valid");
    batch.expect("has rows")
}

fn model() -> Model {
    let tape = (0..500_u32).map(|n| n.wrapping_mul(2_654_435_761));
    model_of(&tape.collect::<Vec<_>>())
}

#[test]
fn runs_of_billions_of_rows_are_refused_before_they_are_unrolled() {
    let ends = Int32Array::from(vec![i32::MAX]);
    let runs = RunArray::<Int32Type>::try_new(&ends, &Int64Array::from(vec![1])).expect("a run");
    let schema = Arc::new(Schema::new(vec![Field::new(
        "value",
        runs.data_type().clone(),
        true,
    )]));
    let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(runs)]).expect("a batch");
    let mut writer = StreamWriter::try_new(Vec::new(), &schema).expect("a writer");
    writer.write(&batch).expect("can be written");
    let record = writer.into_inner().expect("can be written");
    assert!(record.len() < 1000);
    let refused = ipc::read(&record, LIMIT).expect_err("it takes gigabytes");
    assert!(matches!(refused, BadRecord::TooLarge { .. }), "{refused}");
}

#[test]
fn stacks_with_too_many_frames_are_refused() {
    const FRAMES: i32 = 17_000_000;
    let batch = read(&encode_v2(&model()));
    let rows = i32::try_from(batch.num_rows()).expect("a few");
    assert!(rows > 3, "{rows}");
    let place = batch.schema_ref().index_of("stacktrace").expect("present");
    let stacks = batch.column(place);
    let stacks: &ListViewArray = stacks.as_any().downcast_ref().expect("views of lists");
    let frames = stacks.values().as_any();
    let frames: &DictionaryArray<UInt32Type> = frames.downcast_ref().expect("a dictionary");
    let keys = UInt32Array::from(vec![0; FRAMES as usize]);
    let frames: ArrayRef = Arc::new(
        DictionaryArray::<UInt32Type>::try_new(keys, frames.values().clone()).expect("valid keys"),
    );
    let field = Field::new("item", frames.data_type().clone(), true);
    let check = |sizes: Vec<i32>| {
        let views = ListViewArray::try_new(
            Arc::new(field.clone()),
            ScalarBuffer::from(vec![0; rows as usize]),
            ScalarBuffer::from(sizes),
            frames.clone(),
            None,
        );
        let mut columns = batch.columns().to_vec();
        columns[place] = Arc::new(views.expect("valid views"));
        let batch = RecordBatch::try_new(batch.schema(), columns).expect("as many rows");
        to_model(&read_samples(&batch).expect("valid"), &Stacks::default())
    };
    // One stack with many frames is fine, however many samples have it.
    assert!(check(vec![FRAMES / 3; rows as usize]).is_ok());
    let refused = check(vec![FRAMES; rows as usize]).expect_err("too many");
    let RecordError::Layout(reason) = refused else {
        panic!("{refused}");
    };
    assert_eq!(reason, "the stacks have more than 16777216 frames");
}

#[test]
fn the_first_of_duplicate_labels_wins() {
    let mut received = Stacks::default();
    let (samples, stacks) = encode_v1(&model());
    received.add(&read(&stacks)).expect("are stacks");
    let batch = read(&samples);
    let schema = batch.schema();
    let mut fields = schema.fields().to_vec();
    let mut columns = batch.columns().to_vec();
    let rows = batch.num_rows();
    let labels = [
        ("labels.node", "a"),
        ("labels.node", "b"),
        ("labels.host.name", "c"),
        ("labels.thread_id", "1"),
        ("labels.thread_id", "2"),
    ];
    for (name, text) in labels {
        let texts = BinaryArray::from(vec![text.as_bytes()]);
        let keys = UInt32Array::from(vec![0]);
        let texts = DictionaryArray::<UInt32Type>::try_new(keys, Arc::new(texts));
        let ends = Int32Array::from(vec![i32::try_from(rows).expect("a few")]);
        let runs = RunArray::<Int32Type>::try_new(&ends, &texts.expect("a key"));
        let runs = runs.expect("a run");
        fields.push(Arc::new(Field::new(name, runs.data_type().clone(), true)));
        columns.push(Arc::new(runs));
    }
    let schema = Schema::new_with_metadata(fields, schema.metadata().clone());
    let batch = RecordBatch::try_new(Arc::new(schema), columns).expect("as many rows");
    let samples = read_samples(&batch).expect("are samples");
    let model = to_model(&samples, &received).expect("complete");
    let resource = model.resources[0].resource.as_ref().expect("has labels");
    let names = resource
        .attributes
        .iter()
        .filter(|attribute| &*attribute.key == "host.name");
    let names: Vec<_> = names.map(|attribute| attribute.value.as_str()).collect();
    assert_eq!(names, [Some("a")]);
    let profiles = Profiles::from_model(model);
    check(&profiles.to_wire(), CheckOptions::default()).expect("valid OTLP");
}

#[test]
fn negative_lines_inverted_ranges_and_lines_of_nameless_functions_are_dropped() {
    let mut dictionary = Dictionary::default();
    let name = dictionary.strings.push("name");
    let mapping = dictionary.mappings.push(MappingRef {
        mapping: Mapping {
            memory_start: 9,
            memory_limit: 3,
            filename: name,
            ..Mapping::default()
        },
        attributes: &[],
    });
    let function = dictionary.functions.push(profcol_profile::Function {
        name,
        ..profcol_profile::Function::default()
    });
    let nameless = dictionary.functions.push(profcol_profile::Function {
        start_line: 5,
        ..profcol_profile::Function::default()
    });
    let lines = [function, nameless].map(|function| Line {
        function,
        line: -7,
        column: -1,
    });
    let location = dictionary.locations.push(LocationRef {
        location: Location {
            mapping,
            address: 1,
        },
        lines: &lines,
        attributes: &[],
    });
    let mut samples = Samples::default();
    samples.push(SampleRef {
        stack: dictionary.stacks.push(&[location]),
        values: &[1],
        ..SampleRef::default()
    });
    let profile = Profile {
        samples,
        ..Profile::default()
    };
    let scope = ScopeProfiles {
        profiles: vec![Arc::new(profile)],
        ..ScopeProfiles::default()
    };
    let model = Model {
        dictionary: Arc::new(dictionary),
        resources: vec![ResourceProfiles {
            scopes: vec![scope],
            ..ResourceProfiles::default()
        }],
    };
    let (samples, stacks) = encode_v1(&model);
    let mut received = Stacks::default();
    received.add(&read(&stacks)).expect("are stacks");
    for record in [samples, encode_v2(&model)] {
        let samples = read_samples(&read(&record)).expect("are samples");
        let model = to_model(&samples, &received).expect("complete");
        assert_eq!(model.sample_count(), 1);
        let profiles = Profiles::from_model(model);
        check(&profiles.to_wire(), CheckOptions::default()).expect("valid OTLP");
    }
}
