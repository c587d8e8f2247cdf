//! Records and files of a real agent round-trip without loss.

mod records;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use profcol_parca::ipc;
use profcol_parca::padata::{BadFile, Reader};
use profcol_parca::v1::{
    Stacks, encode_samples, encode_stack_request, encode_stacks_without_columns, read_stack_request,
};
use profcol_parca::{Frames, LabelRules, StackIds, Table, raw, read_samples, to_model};
use profcol_pprof::Limits;
use profcol_profile::{CheckOptions, Model, Profiles, check};
use records::{LIMIT, compressed, encode_v1, encode_v2};

fn golden(path: &str) -> PathBuf {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/parca");
    PathBuf::from(directory).join(path)
}

/// The messages of a recorded exchange: whether the client sent it, and the record in it.
fn messages(path: &PathBuf) -> Vec<(bool, Vec<u8>)> {
    let bytes = fs::read(path).expect("recording exists");
    let mut rest = &bytes[..];
    let mut messages = Vec::new();
    while let Some((head, tail)) = rest.split_first_chunk::<5>() {
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let (message, tail) = tail.split_at(length);
        // A message has one field: tag, length, record.
        let begin = message.iter().skip(1).take_while(|byte| **byte & 0x80 != 0);
        let begin = 2 + begin.count();
        messages.push((
            head[0] == b'>',
            message.get(begin..).unwrap_or_default().to_vec(),
        ));
        rest = tail;
    }
    messages
}

fn files(directory: &str, ending: &str) -> Vec<PathBuf> {
    let directory = golden(directory);
    let entries = fs::read_dir(directory).expect("a directory");
    let paths = entries.map(|entry| entry.expect("readable entry").path());
    let mut paths: Vec<PathBuf> = paths
        .filter(|path| path.to_string_lossy().ends_with(ending))
        .collect();
    paths.sort();
    paths
}

fn decode(samples: &[u8], stacks: &[&[u8]]) -> Model {
    let mut received = Stacks::default();
    for stacks in stacks {
        let batch = ipc::read(stacks, LIMIT).expect("valid").expect("has rows");
        received.add(&batch).expect("valid");
    }
    let batch = ipc::read(samples, LIMIT).expect("valid").expect("has rows");
    let samples = read_samples(&batch).expect("valid");
    to_model(&samples, &received).expect("complete")
}

fn encode_raw(model: &Model) -> Vec<u8> {
    let table = Table::new(model, &LabelRules::default());
    raw::encode(&table, &Frames::new(model))
        .expect("can be encoded")
        .to_vec()
}

/// The value of each stack with its labels.
fn contents(model: &Model) -> BTreeMap<String, i64> {
    let dictionary = &model.dictionary;
    let text = |row| dictionary.strings.get(row);
    let mut contents = BTreeMap::new();
    for resource in &model.resources {
        let labels = &resource.resource.as_ref().expect("present").attributes;
        for scope in &resource.scopes {
            for profile in &scope.profiles {
                let sample_type = profile.sample_type.expect("present");
                for sample in profile.samples.iter() {
                    let mut key = format!("{labels:?} {}", text(sample_type.kind));
                    for &row in sample.attributes {
                        let attribute = dictionary.attributes.get(row).expect("present");
                        key += &format!(" {}={:?}", text(attribute.key), attribute.value);
                    }
                    for &row in dictionary.stacks.get(sample.stack) {
                        let location = dictionary.locations.get(row);
                        let mapping = dictionary.mappings.get(location.location.mapping);
                        key += &format!(
                            "\n{:x} {}",
                            location.location.address,
                            text(mapping.mapping.filename)
                        );
                        for &row in mapping.attributes {
                            let id = dictionary.attributes.get(row).expect("present");
                            // Other attributes are the flags of pprof mappings.
                            key += &id
                                .value
                                .as_str()
                                .map_or_else(String::new, |id| format!(" {id}"));
                        }
                        for line in location.lines {
                            let function = dictionary.functions.get(line.function);
                            let function = function.expect("present");
                            key += &format!(
                                " {}:{}:{}:{}",
                                text(function.name),
                                text(function.filename),
                                line.line,
                                line.column
                            );
                        }
                    }
                    *contents.entry(key).or_default() += sample.values.iter().sum::<i64>();
                }
            }
        }
    }
    contents
}

fn check_conformance(model: &Model) {
    let profiles = Profiles::from_model(model.clone());
    check(&profiles.to_wire(), CheckOptions::default()).expect("valid OTLP");
}

#[test]
fn round_trips_through_each_layout() {
    for path in files("online-v1", ".frames") {
        let messages = messages(&path);
        let [(true, samples), (false, requested), (true, stacks)] = &messages[..] else {
            panic!("{}: {} messages", path.display(), messages.len());
        };
        let model = decode(samples, &[stacks]);
        check_conformance(&model);
        let original = contents(&model);
        assert!(!original.is_empty());

        // The server requested each stack once, in the order of the first samples.
        let requested = ipc::read(requested, LIMIT)
            .expect("valid")
            .expect("has rows");
        let requested = read_stack_request(&requested).expect("valid");
        let batch = ipc::read(samples, LIMIT).expect("valid").expect("has rows");
        let read = read_samples(&batch).expect("valid");
        let profcol_parca::StackRefs::Ids(ids) = &read.stacks else {
            panic!("the older layout refers to stacks");
        };
        assert_eq!(
            requested.iter().map(|id| &**id).collect::<Vec<_>>(),
            ids.used()
        );
        let own = encode_stack_request(ids.used()).expect("can be encoded");
        let own = ipc::read(&own, LIMIT).expect("valid").expect("has rows");
        assert_eq!(read_stack_request(&own).expect("valid"), requested);

        let (samples, stacks) = encode_v1(&model);
        assert_eq!(contents(&decode(&samples, &[&stacks])), original);
        let (samples, stacks) = (compressed(&samples), compressed(&stacks));
        assert_eq!(contents(&decode(&samples, &[&stacks])), original);
        let again = contents(&decode(&compressed(&encode_v2(&model)), &[]));
        assert_eq!(again, original, "{}", path.display());

        let request = encode_raw(&model);
        let series = raw::read(&request).expect("valid");
        let read = raw::to_profiles(&series, Limits::default()).expect("valid");
        check_conformance(read.model());
        assert_eq!(contents(read.model()), original, "{}", path.display());
    }
}

#[test]
fn omits_line_columns_for_old_servers() {
    for path in files("online-v1", ".frames") {
        let messages = messages(&path);
        let model = decode(&messages[0].1, &[&messages[2].1]);
        let table = Table::new(&model, &LabelRules::default());
        let frames = Frames::new(&model);
        let mut ids = StackIds::new(&frames);
        let samples = encode_samples(&table, &mut ids).expect("can be encoded");
        let stacks: Vec<_> = table
            .stacks
            .iter()
            .map(|&row| (ids.id(row), Some(row)))
            .collect();
        let stacks = encode_stacks_without_columns(&frames, &stacks).expect("can be encoded");
        let schema = ipc::stated_schema(&stacks).expect("valid");
        assert!(!format!("{schema:?}").contains("\"column\""));
        // Old agents also send such records.
        let again = contents(&decode(&samples, &[&stacks]));
        assert_eq!(again, contents(&model), "{}", path.display());
    }
}

#[test]
fn rejects_series_that_the_server_rejects() {
    let label = |name: &str, value: &str| {
        let field = |tag: u8, text: &str| [&[tag, text.len() as u8], text.as_bytes()].concat();
        let label = [field(0x0a, name), field(0x12, value)].concat();
        [&[0x0a, label.len() as u8][..], &label].concat()
    };
    let check = |labels: &[(&str, &str)], expected: &str| {
        let set: Vec<u8> = labels
            .iter()
            .flat_map(|(name, value)| label(name, value))
            .collect();
        let series = [&[0x0a, set.len() as u8][..], &set].concat();
        let request = [&[0x12, series.len() as u8][..], &series].concat();
        let outcome = raw::read(&request).map(|series| series.len());
        let outcome = outcome.map_or_else(|error| error.to_string(), |series| series.to_string());
        assert!(outcome.contains(expected), "{labels:?}: {outcome}");
    };
    check(&[("__name__", "cpu"), ("node", "a")], "1");
    check(&[("__name__", "cpu"), ("a-b", "")], "1");
    check(&[], "no label __name__");
    check(&[("node", "a")], "no label __name__");
    check(&[("__name__", "a.b")], "invalid profile name");
    check(&[("__name__", "cpu"), ("", "a")], "without a name");
    check(
        &[("__name__", "cpu"), ("b", "1"), ("b", "2")],
        "duplicate label \"b\"",
    );
}

/// After gzip, which the agent does not use; the server's requests count, too.
#[test]
fn every_layout_takes_at_most_half_of_the_agents_bytes() {
    let packed = |bytes: &[u8]| profcol_pprof::gzip(bytes).len();
    let sum = |path: &PathBuf| -> usize {
        let messages = messages(path);
        messages.iter().map(|(_, record)| record.len()).sum()
    };
    for directory in ["online-v1", "online-v2"] {
        for path in files(directory, ".frames") {
            let messages = messages(&path);
            let stacks = messages.get(2).map(|(_, stacks)| &stacks[..]);
            let model = decode(&messages[0].1, stacks.as_slice());
            let (samples, stacks) = encode_v1(&model);
            let read = ipc::read(&samples, LIMIT).expect("valid");
            let read = read_samples(&read.expect("has rows")).expect("valid");
            let profcol_parca::StackRefs::Ids(ids) = &read.stacks else {
                panic!("the older layout refers to stacks");
            };
            // Servers do not compress their requests.
            let requested = encode_stack_request(ids.used()).expect("can be encoded");
            let v1 = packed(&samples) + requested.len() + packed(&stacks);
            let v2 = packed(&encode_v2(&model));
            let raw = packed(&encode_raw(&model));
            let theirs = sum(&path);
            for (layout, own) in [("v1", v1), ("v2", v2), ("raw", raw)] {
                let name = path.display();
                assert!(
                    2 * own <= theirs,
                    "{layout} of {name}: {own} of {theirs} bytes"
                );
            }
        }
    }
}

#[test]
fn has_the_columns_of_the_real_agent() {
    for path in files("online-v1", ".frames") {
        let messages = messages(&path);
        let model = decode(&messages[0].1, &[&messages[2].1]);
        let (samples, stacks) = encode_v1(&model);
        for (own, theirs) in [(&samples, &messages[0].1), (&stacks, &messages[2].1)] {
            let own = ipc::stated_schema(own).expect("valid");
            assert_eq!(own, ipc::stated_schema(theirs).expect("valid"));
        }
    }
    for path in files("online-v2", ".frames") {
        let messages = messages(&path);
        let model = decode(&messages[0].1, &[]);
        check_conformance(&model);
        let own = encode_v2(&model);
        let theirs = ipc::stated_schema(&messages[0].1).expect("valid");
        assert_eq!(ipc::stated_schema(&own).expect("valid"), theirs);
        let again = contents(&decode(&own, &[]));
        assert_eq!(again, contents(&model), "{}", path.display());
    }
}

#[test]
fn reads_files_up_to_the_truncation() {
    for (path, expected) in [
        ("offline-v1/1795255569-319.padata", &[59, 65][..]),
        ("offline-v1/1795255569-319-torn.padata", &[59]),
        ("offline-v2/1795255519-23212.padata", &[40, 61]),
        ("offline-v2/1795255519-23212-torn.padata", &[40]),
    ] {
        let path = golden(path);
        let file = fs::File::open(&path).expect("present");
        let mut reader = Reader::new(file, 1 << 20).expect("valid header");
        let mut stacks = Stacks::default();
        let mut rows = Vec::new();
        let end = loop {
            let batch = match reader.next_batch() {
                Ok(Some(batch)) => batch,
                Ok(None) => break None,
                Err(error) => break Some(error),
            };
            if let Some(received) = &batch.stacks {
                let received = ipc::read(received, LIMIT)
                    .expect("valid")
                    .expect("has rows");
                stacks.add(&received).expect("valid");
            }
            let samples = ipc::read(&batch.samples, LIMIT).expect("valid");
            let samples = read_samples(&samples.expect("has rows")).expect("valid");
            let model = to_model(&samples, &stacks).expect("complete");
            let values = model.profiles().flat_map(|profile| profile.samples.iter());
            rows.push(values.map(|sample| sample.values.len()).sum::<usize>());
        };
        assert_eq!(rows, expected, "{}", path.display());
        let is_torn = path.to_string_lossy().contains("torn");
        let is_truncated = matches!(end, Some(BadFile::Truncated { .. }));
        assert_eq!(is_truncated, is_torn, "{end:?}");
    }
}
