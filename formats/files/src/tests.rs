use profcol_flamegraph::{SampleType, folded};
use profcol_profile::testkit::models;
use proptest::prelude::*;

use crate::*;

const STACKS: &str = "main;a 3\nmain;a;b 4\nother 1\n";

fn stacks(content: &[u8]) -> String {
    let model = read(content).unwrap();
    let kind = profcol_flamegraph::sample_types(&model).remove(0);
    folded(&call_tree(&model, kind).0)
}

#[test]
fn what_is_written_is_read_again() {
    let model = read(STACKS.as_bytes()).unwrap();
    for name in [
        "a.pb.gz",
        "a.pprof",
        "a.otlp",
        "a.otlp.json",
        "a.folded",
        "A.COLLAPSED",
    ] {
        let format = Format::of_file(name).unwrap();
        let content = write(&model, format, "test").unwrap();
        assert_eq!(stacks(&content), STACKS, "{name}");
    }
}

/// pprof has the count of samples and what they stand for beside each other: they must not be added up.
#[test]
fn what_a_clock_counted_is_not_counted_twice() {
    let mut model = read(STACKS.as_bytes()).unwrap();
    let dictionary = std::sync::Arc::make_mut(&mut model.dictionary);
    let period_type = profcol_profile::ValueType {
        kind: dictionary.strings.push("cpu"),
        unit: dictionary.strings.push("nanoseconds"),
    };
    let profile = &mut model.resources[0].scopes[0].profiles[0];
    let profile = std::sync::Arc::make_mut(profile);
    profile.period_type = Some(period_type);
    profile.period = 10;
    let expected = "main;a 30\nmain;a;b 40\nother 10\n";
    for name in ["a.otlp", "a.pb.gz"] {
        let content = write(&model, Format::of_file(name).unwrap(), "test").unwrap();
        assert_eq!(stacks(&content), expected, "{name}");
        let again = read(&content).unwrap();
        let kind = profcol_flamegraph::sample_types(&again).remove(0);
        assert_eq!((&*kind.name, &*kind.unit), ("cpu", "nanoseconds"));
        assert_eq!(call_tree(&again, kind).1.samples, 8, "{name}");
    }
}

#[test]
fn pictures_and_pages_have_the_functions() {
    let model = read(STACKS.as_bytes()).unwrap();
    for name in ["a.svg", "a.html", "a.speedscope.json"] {
        let content = write(&model, Format::of_file(name).unwrap(), "test").unwrap();
        let text = String::from_utf8(content).unwrap();
        assert!(text.contains("main") && text.contains("other"), "{name}");
    }
}

#[test]
fn a_name_without_a_format_says_what_there_is() {
    let error = Format::of_file("profile.xyz").unwrap_err().to_string();
    assert!(
        error.starts_with(
            "\"profile.xyz\" does not say its format by its ending; use one of .pb.gz, "
        ),
        "{error}"
    );
}

#[test]
fn what_is_no_profile_says_so() {
    let error = |content: &[u8]| read(content).unwrap_err().to_string();
    assert_eq!(error(b""), "the file is empty");
    assert_eq!(
        error(b"main;a 1\nhello"),
        "line 2 is not a folded stack such as `main;run;read 12`"
    );
    assert!(error(b"{\"a\": ").starts_with("not an OTLP profile in JSON: "));
    assert!(error(b"\x1f\x8bxx").starts_with("failed to decompress the profile: "));
    assert!(error(b"\x00\x01\x02").starts_with("not a profile that can be read: neither pprof"));
    let empty = read(b"# nothing\n").unwrap();
    assert_eq!(
        write(&empty, Format::Pprof, "").unwrap_err().to_string(),
        "there is no sample in it"
    );
}

proptest! {
    /// Whatever the bytes are, they are read or refused.
    #[test]
    fn reads_anything(content in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&content);
    }

    /// No profile is too strange to be drawn.
    #[test]
    fn draws_anything(model in models()) {
        for kind in profcol_flamegraph::sample_types(&model) {
            let SampleType { name, .. } = &kind;
            let _ = name;
            let (tree, _) = call_tree(&model, kind);
            let _ = folded(&tree);
        }
        for name in ["a.svg", "a.html", "a.speedscope.json", "a.folded"] {
            let _ = write(&model, Format::of_file(name).unwrap(), "<title>");
        }
    }
}
