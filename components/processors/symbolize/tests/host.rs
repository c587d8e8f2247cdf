//! Symbolizes code of this host's kernel and runtimes, but not that of other hosts.

use profcol_component::Executables;
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use profcol_processes::Host;
use profcol_profile::{Attributes, Idx, ResourceProfiles, ScopeProfiles};
use profcol_symbols::KernelSymbolizer;
use profcol_test_skip::skip;

use super::*;

/// An address outside of all mappings.
const GENERATED: u64 = 0x1234_5000;

/// An address as written in profiles.
#[derive(Clone, Copy)]
struct At<'a> {
    address: u64,
    /// The file of its mapping; empty for none.
    file: &'a str,
    build_id: &'a str,
    kind: &'a str,
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_nanos()).unwrap()
}

fn here() -> Attributes {
    vec![KeyValue::new("host.name", &*Host::read().name)]
}

fn elsewhere() -> Attributes {
    vec![KeyValue::new("host.name", "another")]
}

fn process(pid: u32) -> Attributes {
    let mut attributes = here();
    attributes.push(KeyValue::new("process.pid", i64::from(pid)));
    attributes
}

/// A profile with one location, and the owners that were sampled there at these times.
fn seen(at: At<'_>, owners: &[(Attributes, u64)]) -> Profiles {
    let mut rows = Interner::new();
    let mut attribute = |key: &str, value: &str| {
        let key = rows.string(key);
        (!value.is_empty()).then(|| {
            rows.attribute(AttributeRef {
                key,
                value: &value.into(),
                unit: StringIdx::UNSET,
            })
        })
    };
    let id = attribute("process.executable.build_id.gnu", at.build_id);
    let kind = attribute("profile.frame.type", at.kind);
    let mapping = match at.file {
        "" => Idx::UNSET,
        file => {
            let filename = rows.string(file);
            rows.mapping(MappingRef {
                mapping: Mapping {
                    filename,
                    ..Mapping::default()
                },
                attributes: id.as_slice(),
            })
        }
    };
    let location = rows.location(LocationRef {
        location: Location {
            mapping,
            address: at.address,
        },
        lines: &[],
        attributes: kind.as_slice(),
    });
    let stack = rows.stack(&[location]);
    let resources = owners.iter().map(|(attributes, time)| {
        let mut samples = Samples::default();
        samples.push(SampleRef {
            stack,
            values: &[1],
            ..SampleRef::default()
        });
        ResourceProfiles {
            resource: Some(Arc::new(Resource {
                attributes: attributes.clone(),
                ..Resource::default()
            })),
            scopes: vec![ScopeProfiles {
                profiles: vec![Arc::new(Profile {
                    samples,
                    time_unix_nano: *time,
                    ..Profile::default()
                })],
                ..ScopeProfiles::default()
            }],
            ..ResourceProfiles::default()
        }
    });
    let resources = resources.collect();
    Profiles::from_model(Model {
        dictionary: Arc::new(rows.finish()),
        resources,
    })
}

async fn started(options: &str) -> Fixture {
    let rig = Fixture::new(options);
    rig.processor.start().await.unwrap();
    rig
}

async fn name_of(rig: &Fixture, at: At<'_>, owners: &[(Attributes, u64)]) -> Option<String> {
    let passed = rig.pass(seen(at, owners)).await;
    named(&passed).map(|(name, ..)| name)
}

/// The start of a function of the running kernel.
fn kernel_function(name: &str) -> Option<u64> {
    let symbols = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let mut lines = symbols.lines();
    let line = lines.find(|line| line.ends_with(&format!(" T {name}")));
    let address = line.and_then(|line| u64::from_str_radix(line.split(' ').next()?, 16).ok());
    let address = address.filter(|&address| address > 0);
    if address.is_none() {
        skip("the kernel's addresses are readable by root only");
    }
    address
}

const FUNCTION: &str = "vfs_read";

#[tokio::test]
async fn symbolizes_the_kernel_of_this_host_and_boot() {
    let Some(start) = kernel_function(FUNCTION) else {
        return;
    };
    let at = At {
        address: start + 5,
        file: "[kernel.kallsyms]",
        build_id: "",
        kind: "",
    };
    let typed = At {
        kind: "kernel",
        ..at
    };
    let other_build = At {
        build_id: "abcd",
        ..typed
    };
    let boot = u64::try_from(Host::read().started().unwrap()).unwrap() * 1_000_000;
    let before = boot - 60_000_000_000;
    let both = [(here(), now()), (elsewhere(), now())];
    for targets in ["all", "interpreted", "kernel"] {
        let rig = started(&format!("targets: {targets}")).await;
        for at in [at, typed] {
            let name = name_of(&rig, at, &[(here(), now())]).await;
            assert_eq!(name.as_deref(), Some(FUNCTION), "{targets}");
        }
        let mut unresolved_count = 0;
        for (at, owners) in [
            (at, &[(elsewhere(), now())][..]),
            (at, &[(Attributes::new(), now())]),
            (at, &both),
            (at, &[(here(), before)]),
            (at, &[(here(), 0)]),
            (other_build, &[(here(), now())]),
        ] {
            assert_eq!(name_of(&rig, at, owners).await, None, "{targets}");
            unresolved_count += 1;
            assert!(
                rig.counts(&unresolved("not_local", unresolved_count)),
                "{targets}"
            );
        }
        rig.finish().await;
    }
    let rig = started("assume_local: true").await;
    let without_host = [(Attributes::new(), now())];
    let name = name_of(&rig, at, &without_host).await;
    assert_eq!(name.as_deref(), Some(FUNCTION));
    rig.finish().await;
    let rig = started("targets: none").await;
    assert_eq!(name_of(&rig, at, &[(here(), now())]).await, None);
    rig.finish().await;
}

#[tokio::test]
async fn symbolizes_a_kernel_with_the_same_build_id_of_any_host() {
    let Some(start) = kernel_function(FUNCTION) else {
        return;
    };
    let names = KernelSymbolizer::read(|_| None).unwrap();
    let frame = names.find(start + 5);
    let Some(build_id) = frame.build_id else {
        skip("the kernel has no build ID");
        return;
    };
    let at = At {
        address: frame.offset,
        file: frame.file,
        build_id,
        kind: "kernel",
    };
    let rig = started("targets: kernel").await;
    let owners = [(elsewhere(), 0)];
    assert_eq!(name_of(&rig, at, &owners).await.as_deref(), Some(FUNCTION));
    let other = At {
        build_id: "abcd",
        ..at
    };
    assert_eq!(name_of(&rig, other, &owners).await, None);
    rig.finish().await;
}

/// A perf map that is deleted when the test ends.
struct PerfMap(PathBuf);

impl PerfMap {
    fn of(pid: u32, name: &str) -> Self {
        let path = PathBuf::from(format!("/tmp/perf-{pid}.map"));
        fs::write(&path, format!("{GENERATED:x} 100 {name}\n")).unwrap();
        Self(path)
    }
}

impl Drop for PerfMap {
    fn drop(&mut self) {
        let _gone = fs::remove_file(&self.0);
    }
}

/// A process that runs until dropped.
struct Runtime(Child);

impl Runtime {
    fn start() -> Self {
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _waited = self.0.wait();
    }
}

#[tokio::test]
async fn symbolizes_generated_code_by_perf_map() {
    let (first, second) = (Runtime::start(), Runtime::start());
    let _maps = (
        PerfMap::of(first.pid(), "LazyCompile:~loop app.js:3"),
        PerfMap::of(second.pid(), "LazyCompile:~other app.js:9"),
    );
    let at = At {
        address: GENERATED + 7,
        file: "[anon]",
        build_id: "",
        kind: "native",
    };
    let of = |runtime: &Runtime| (process(runtime.pid()), now());
    for targets in ["all", "interpreted"] {
        let rig = started(&format!("targets: {targets}")).await;
        for file in ["[anon]", "//anon", "/memfd:code", ""] {
            let name = name_of(&rig, At { file, ..at }, &[of(&first)]).await;
            assert_eq!(
                name.as_deref(),
                Some("LazyCompile:~loop app.js:3"),
                "{file}"
            );
        }
        // One address with two different symbols.
        assert_eq!(name_of(&rig, at, &[of(&first), of(&second)]).await, None);
        let behind = At {
            address: GENERATED + 0x100,
            ..at
        };
        assert_eq!(name_of(&rig, behind, &[of(&first)]).await, None);
        // Another process had this PID at that time.
        let earlier = [(process(first.pid()), now() - 60_000_000_000)];
        assert_eq!(name_of(&rig, at, &earlier).await, None);
        assert!(rig.counts(&unresolved("not_found", 3)));
        let mut foreign = elsewhere();
        foreign.push(KeyValue::new("process.pid", i64::from(first.pid())));
        assert_eq!(name_of(&rig, at, &[(foreign, now())]).await, None);
        assert!(rig.counts(&unresolved("not_local", 1)));
        rig.finish().await;
    }
    let rig = started("targets: kernel").await;
    assert_eq!(name_of(&rig, at, &[of(&first)]).await, None);
    rig.finish().await;
}

#[tokio::test]
async fn leaves_native_code_alone_unless_targeted() {
    let own = Own::read();
    for targets in ["kernel", "interpreted", "none"] {
        let rig = started(&format!("targets: {targets}")).await;
        assert!(!rig.context.shared.get::<Executables>().has_subscribers());
        let passed = rig.pass(own.native()).await;
        assert_eq!(named(&passed), None, "{targets}");
        rig.finish().await;
    }
}
