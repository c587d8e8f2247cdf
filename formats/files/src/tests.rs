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
fn written_profiles_can_be_read_back() {
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

/// pprof stores the sample count beside the weight: the two must not be added up.
#[test]
fn pprof_sample_counts_are_not_added_to_the_values() {
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
fn svg_and_html_contain_the_functions() {
    let model = read(STACKS.as_bytes()).unwrap();
    for name in ["a.svg", "a.html", "a.speedscope.json"] {
        let content = write(&model, Format::of_file(name).unwrap(), "test").unwrap();
        let text = String::from_utf8(content).unwrap();
        assert!(text.contains("main") && text.contains("other"), "{name}");
    }
}

#[test]
fn an_unknown_extension_lists_the_known_ones() {
    let error = Format::of_file("profile.xyz").unwrap_err().to_string();
    assert!(
        error.starts_with("unknown file extension in \"profile.xyz\"; use one of .pb.gz, "),
        "{error}"
    );
}

#[test]
fn invalid_profiles_are_rejected_with_a_reason() {
    let error = |content: &[u8]| read(content).unwrap_err().to_string();
    assert_eq!(error(b""), "the file is empty");
    assert_eq!(
        error(b"main;a 1\nhello"),
        "line 2 is not a folded stack such as `main;run;read 12`"
    );
    assert!(error(b"{\"a\": ").starts_with("invalid OTLP JSON profile: "));
    assert!(error(b"\x1f\x8bxx").starts_with("failed to decompress the profile: "));
    assert!(error(b"\x00\x01\x02").starts_with("unknown profile format: not pprof"));
    let empty = read(b"# nothing\n").unwrap();
    assert_eq!(
        write(&empty, Format::Pprof, "").unwrap_err().to_string(),
        "the profile has no samples"
    );
}

proptest! {
    /// Arbitrary bytes either decode or return an error.
    #[test]
    fn reads_anything(content in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&content);
    }

    /// Arbitrary profiles can be drawn.
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
