//! Handmade declarations, each changed in one place, against handmade descriptors: every difference is reported.

use super::*;

const DEFINED: &str = "\
    a.v1.Profile id 1 uint64 singular\n\
    a.v1.Profile labels 2 map<string,string> repeated\n\
    a.v1.Profile samples 3 message:a.v1.Sample repeated\n\
    a.v1.Profile state 4 enum:a.v1.State singular\n\
    a.v1.Profile limit 5 int64 optional\n\
    a.v1.Profile typeID 6 string singular\n\
    a.v1.Profile text 7 string oneof:data\n\
    a.v1.Profile bytes 8 bytes oneof:data\n\
    a.v1.Sample value 1 int64 repeated\n\
    a.v1.OldSample value 1 int64 repeated\n\
    a.v1.State STATE_UNKNOWN 0\n\
    a.v1.State STATE_HALF_OPEN 1\n";

const DECLARED: &str = r#"
    /// `a.v1.Profile`, as far as it is used.
    #[derive(Clone, PartialEq, Message)]
    struct Profile {
        #[prost(uint64, tag = "1")]
        id: u64,
        #[prost(btree_map = "string, string", tag = "2")]
        labels: BTreeMap<String, String>,
        #[prost(message, repeated, tag = "3")]
        samples: Vec<Sample>,
        #[prost(enumeration = "State", tag = "4")]
        state: i32,
        #[prost(int64, optional, tag = "5")]
        limit: Option<i64>,
        #[prost(string, tag = "6")]
        type_id: String,
        #[prost(oneof = "Data", tags = "7, 8")]
        data: Option<Data>,
    }
    #[derive(Clone, PartialEq, prost::Oneof)]
    enum Data {
        #[prost(string, tag = "7")]
        Text(String),
        #[prost(bytes = "vec", tag = "8")]
        Bytes(Vec<u8>),
    }
    /// `a.v1.Sample` and
    /// `a.v1.OldSample`
    ///
    /// Unlike `a.v1.Other`.
    #[derive(Message)]
    struct Sample {
        #[prost(int64, repeated, tag = "1")]
        value: Vec<i64>,
    }
    /// `a.v1.State`
    #[derive(Enumeration)]
    enum State {
        Unknown = 0,
        HalfOpen = 1,
    }
    /// `a.v1.State`: its numbers and names.
    struct Numbers;
    impl Numbers {
        const HALF_OPEN: i32 = 1;
    }
    impl json::Names for Numbers {
        const NAMES: &'static [&'static str] = &["STATE_UNKNOWN", "STATE_HALF_OPEN"];
    }
    mod other {
        /// `a.v1.Profile`
        #[derive(Message)]
        struct Sample {
            #[prost(int32, tag = "4")]
            r#state: i32,
        }
    }
    /// Without prost.
    struct Other;
"#;

/// The problems after one place in the declarations was changed.
fn problems(from: &str, to: &str) -> Vec<String> {
    assert_eq!(DECLARED.matches(from).count(), 1, "{from}");
    let declared = Declarations::parse(&DECLARED.replace(from, to)).unwrap();
    declared.compare(&Descriptors::parse(DEFINED).unwrap())
}

#[test]
fn accepts_what_is_defined() {
    assert_eq!(problems("mod other", "mod another"), [""; 0]);
}

#[test]
fn names_the_struct_the_field_and_the_difference() {
    let wrong = problems(
        "int64, optional, tag = \"5\"",
        "int64, optional, tag = \"9\"",
    );
    let expected = "`Profile::limit` has the tag 9, but `a.v1.Profile` has no such field";
    assert_eq!(wrong, [expected]);
    let wrong = problems("uint64, tag", "int64, tag");
    let expected = "`Profile::id` has the type `int64`, but field 1 of `a.v1.Profile` has `uint64`";
    assert_eq!(wrong, [expected]);
}

#[test]
fn reports_each_difference() {
    for (from, to, expected) in [
        ("id: u64", "ident: u64", "the name `ident`"),
        (
            "\"string, string\"",
            "\"string, bytes\"",
            "the type `map<string,bytes>`",
        ),
        ("Vec<Sample>", "Vec<Other>", "the type `Other`"),
        ("Vec<Sample>", "Vec<State>", "the type `State`"),
        (
            "message, repeated",
            "message, optional",
            "`singular` or `optional`",
        ),
        ("= \"State\"", "= \"Sample\"", "the type `Sample`"),
        ("int64, optional", "int64", "the cardinality `singular`"),
        (
            "string, tag = \"6\"",
            "string, optional, tag = \"6\"",
            "the cardinality `optional`",
        ),
        ("\"7, 8\"", "\"7, 9\"", "has the tags [7, 9]"),
        (
            "= \"Data\"",
            "= \"Elsewhere\"",
            "`Elsewhere` is not declared",
        ),
        (
            "data: Option",
            "value: Option",
            "the cardinality `oneof:value`",
        ),
        ("Text(", "Words(", "`Data::Words` has the name `Words`"),
        (
            "int64, repeated, tag = \"1\"",
            "int64, tag = \"1\"",
            "`a.v1.OldSample` has `repeated`",
        ),
        ("HalfOpen = 1", "HalfOpen = 2", "`State::HalfOpen` is 2"),
        ("Unknown = 0", "Open = 0", "`State::Open` is 0"),
        (
            "HALF_OPEN: i32 = 1",
            "HALF_OPEN: i32 = 0",
            "`Numbers::HALF_OPEN` is 0",
        ),
        (
            "\"STATE_HALF_OPEN\"]",
            "\"STATE_OPENED\"]",
            "`Numbers::STATE_OPENED` is 1",
        ),
        (
            "int32, tag = \"4\"",
            "int32, tag = \"1\"",
            "the type `int32`",
        ),
        (
            "/// `a.v1.Sample` and",
            "/// A sample,",
            "does not begin with",
        ),
        ("/// `a.v1.OldSample`", "/// `a.v1.NewSample`", "add it to"),
    ] {
        let problems = problems(from, to);
        let is_reported = problems.iter().any(|it| it.contains(expected));
        assert!(is_reported, "{from} to {to}: {problems:?}");
    }
}

#[test]
fn refuses_what_it_does_not_understand() {
    for (from, to) in [
        ("#[prost(uint64, tag = \"1\")]", ""),
        ("uint64, tag", "fixed64, tag"),
        ("uint64, tag", "uint64, packed = \"false\", tag"),
        ("uint64, tag", "uint64, string, tag"),
        ("uint64, tag", "tag"),
        ("tag = \"2\"", "tag = \"two\""),
        ("tag = \"2\"", "tag = 2"),
        ("Text(String)", "Text"),
        ("Unknown = 0", "Unknown"),
    ] {
        let text = DECLARED.replace(from, to);
        assert!(Declarations::parse(&text).is_err(), "{from} to {to}");
    }
    for line in [
        "a.v1.Sample value 1 int64",
        "a.v1.Sample value x int64 singular",
    ] {
        assert!(Descriptors::parse(line).is_err(), "{line}");
    }
}

#[test]
fn a_package_may_be_missing() {
    assert!(may_be_missing("parca.debuginfo.v1alpha1.UploadInfo"));
    assert!(!may_be_missing("parca.debuginfo.v1alpha10.UploadInfo"));
}
