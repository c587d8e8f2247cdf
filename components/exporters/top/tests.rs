use std::sync::Arc;

use profcol_component::testkit::load;
use profcol_profile::{
    Function, Interner, KeyValue, Line, Location, LocationRef, Mapping, MappingRef, Model, Profile,
    Profiles, Resource, ResourceProfiles, SampleRef, Samples, ScopeProfiles, ValueType,
};

use super::*;

/// Samples of a clock of 10 ms: process, stack (leaf first, a frame without name is its file), times.
type Told<'a> = (&'a str, i64, &'a [&'a str], usize);

fn model(told: &[Told<'_>]) -> Model {
    let mut rows = Interner::new();
    let mut value_type = |kind, unit| ValueType {
        kind: rows.string(kind),
        unit: rows.string(unit),
    };
    let (counted, clock) = (
        value_type("samples", "count"),
        value_type("cpu", "nanoseconds"),
    );
    let resources = told.iter().map(|(process, pid, frames, times)| {
        let frames: Vec<_> = frames
            .iter()
            .map(|frame| location(&mut rows, frame))
            .collect();
        let mut samples = Samples::default();
        let timestamps: Vec<u64> = (0..*times as u64).collect();
        samples.push(SampleRef {
            stack: rows.stack(&frames),
            timestamps: &timestamps,
            ..SampleRef::default()
        });
        let profile = Profile {
            sample_type: Some(counted),
            period_type: Some(clock),
            period: 10_000_000,
            time_unix_nano: 1_000_000_000_000,
            duration_nano: 1_000_000_000,
            samples,
            ..Profile::default()
        };
        let attributes = vec![
            KeyValue::new("process.executable.name", *process),
            KeyValue::new("process.pid", *pid),
            KeyValue::new("systemd.unit", "x.service"),
        ];
        ResourceProfiles {
            resource: Some(Arc::new(Resource {
                attributes,
                ..Resource::default()
            })),
            scopes: vec![ScopeProfiles {
                profiles: vec![Arc::new(profile)],
                ..ScopeProfiles::default()
            }],
            ..ResourceProfiles::default()
        }
    });
    let resources = resources.collect();
    Model {
        dictionary: Arc::new(rows.finish()),
        resources,
    }
}

fn location(rows: &mut Interner, frame: &str) -> profcol_profile::LocationIdx {
    let is_named = !frame.starts_with('/');
    let filename = rows.string(if is_named { "/usr/bin/app" } else { frame });
    let mapping = rows.mapping(MappingRef {
        mapping: Mapping {
            filename,
            ..Mapping::default()
        },
        ..MappingRef::default()
    });
    let name = rows.string(frame);
    let function = rows.function(Function {
        name,
        ..Function::default()
    });
    let line = Line {
        function,
        ..Line::default()
    };
    rows.location(LocationRef {
        location: Location {
            mapping,
            address: 0x10,
        },
        lines: if is_named {
            std::slice::from_ref(&line)
        } else {
            &[]
        },
        ..LocationRef::default()
    })
}

async fn shown(options: &str, told: &[Told<'_>]) -> Option<String> {
    let top = Top::new(&load(options).unwrap());
    let batch = Batch::new(Profiles::from_model(model(told)));
    top.export(&batch).await.unwrap();
    top.take_text()
}

#[tokio::test]
async fn prints_what_is_hottest() {
    let told: &[Told<'_>] = &[
        ("web", 7, &["parse", "serve", "serve", "main"], 60),
        ("web", 8, &["write", "serve", "main"], 25),
        ("db", 9, &["/usr/lib/libdb.so", "main"], 10),
        ("tool", 10, &["evil\u{1b}[2J"], 5),
    ];
    let expected = "
── 1 s: 100 samples, 1.00 s of cpu = 1.00 CPUs
   own     all  function
 60.0%   60.0%  parse  [app]
 25.0%   25.0%  write  [app]
 10.0%   10.0%  (libdb.so, no symbol)
         all  process
        85.0%  web × 2  [x.service]
        10.0%  db 9  [x.service]
         5.0%  tool 10  [x.service]
";
    assert_eq!(shown("functions: 3", told).await.unwrap(), expected);
    let all = shown("{functions: 9, processes: 0}", told).await.unwrap();
    assert!(all.contains("evil\u{fffd}[2J"), "{all}");
    assert!(!all.contains("process"), "{all}");
}

#[tokio::test]
async fn what_is_printed_is_over() {
    let top = Top::new(&TopConfig::default());
    assert_eq!(top.take_text(), None);
    let batch = Batch::new(Profiles::from_model(model(&[("a", 1, &["f"], 1)])));
    top.export(&batch).await.unwrap();
    assert!(top.take_text().is_some());
    assert_eq!(top.take_text(), None);
}

#[tokio::test]
async fn long_names_are_cut_in_their_middle() {
    let name = format!("begin{}end", "x".repeat(500));
    let text = shown("{}", &[("a", 1, &[&name], 1)]).await.unwrap();
    assert!(text.contains("beginxx") && text.contains("x…x"), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() < 100),
        "{text}"
    );
}

#[test]
fn refuses_to_show_nothing() {
    for (options, expected) in [
        ("{functions: 0, processes: 0}", "shows nothing"),
        ("interval: 0s", "longer than 0s"),
    ] {
        let problems = load::<TopConfig>(options).unwrap_err();
        assert!(problems.contains(expected), "{problems}");
    }
}
