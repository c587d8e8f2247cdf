//! Batches that pass a component, as JSON of bounded size.

use std::time::UNIX_EPOCH;

use profcol_component::{DeferredSymbols, Passed, Side, SymbolLookup};
use profcol_flamegraph::{FrameAdder, FrameTable};
use profcol_profile::{
    AttributeIdx, Attributes, Dictionary, LocationIdx, Profile, ResourceProfiles, SampleRef,
    StackIdx,
};
use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::excerpt::{Excerpt, MAX_ATTRIBUTES, OVERHEAD};

/// Text per batch; the rest is omitted.
const MAX_BATCH_TEXT: usize = 256 << 10;
const MAX_VALUES: usize = 16;
const MAX_FRAMES: usize = 128;

/// How much of a batch is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extract {
    pub resources: usize,
    /// Per profile.
    pub samples: usize,
    /// Only the resources of this process.
    pub pid: Option<i64>,
}

/// What a batch looks like.
#[derive(Debug, Serialize)]
pub(super) struct ShownBatch {
    /// `processor/relabel`
    component: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pipeline: Option<String>,
    side: &'static str,
    /// When it passed: Unix time in milliseconds.
    time: u64,
    /// Samples of the whole batch.
    samples: usize,
    resources: Vec<ShownResource>,
    omitted: Omitted,
}

/// What the limits leave out.
#[derive(Debug, Default, Serialize)]
struct Omitted {
    resources: usize,
    /// Profiles left out of the resources that are shown.
    profiles: usize,
    /// Samples left out of the profiles that are shown.
    samples: usize,
}

#[derive(Debug, Serialize)]
struct ShownResource {
    attributes: Map<String, Json>,
    profiles: Vec<ShownProfile>,
}

#[derive(Debug, Serialize)]
struct ShownProfile {
    r#type: String,
    unit: String,
    time_unix_nano: u64,
    duration_nano: u64,
    /// Samples of the whole profile, also those not shown.
    sample_count: usize,
    samples: Vec<ShownSample>,
}

#[derive(Debug, Serialize)]
struct ShownSample {
    values: Vec<i64>,
    timestamps: usize,
    attributes: Map<String, Json>,
    /// Functions, the outermost first.
    stack: Vec<String>,
    #[serde(skip_serializing_if = "is_zero")]
    omitted_frames: usize,
}

struct Renderer<'a> {
    dictionary: &'a Dictionary,
    symbols: &'a DeferredSymbols,
    adder: FrameAdder<'a>,
    table: FrameTable,
    extract: Extract,
    text: Excerpt,
    omitted: Omitted,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The batch as JSON; `None` if it has no resource to show.
pub(super) fn shown(passed: &Passed, extract: Extract) -> Option<ShownBatch> {
    let Passed { point, time, batch } = passed;
    let model = batch.profiles.model();
    let mut renderer = Renderer {
        dictionary: &model.dictionary,
        symbols: &batch.deferred_symbols,
        adder: FrameAdder::new(&model.dictionary),
        table: FrameTable::default(),
        extract,
        text: Excerpt::new(MAX_BATCH_TEXT),
        omitted: Omitted::default(),
    };
    let is_wanted = |row: &&ResourceProfiles| extract.pid.is_none() || pid_of(row) == extract.pid;
    let mut resources = Vec::new();
    for row in model.resources.iter().filter(is_wanted) {
        if resources.len() == extract.resources || renderer.text.is_full() {
            renderer.omitted.resources += 1;
        } else {
            resources.push(renderer.resource(row));
        }
    }
    if resources.is_empty() && extract.pid.is_some() {
        return None;
    }
    let time = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Some(ShownBatch {
        component: format!("{}/{}", point.kind, point.id),
        pipeline: point.pipeline.clone(),
        side: side_name(point.side),
        time: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        samples: batch.profiles.sample_count(),
        resources,
        omitted: renderer.omitted,
    })
}

pub(super) fn side_name(side: Side) -> &'static str {
    match side {
        Side::Input => "input",
        Side::Output => "output",
    }
}

fn pid_of(row: &ResourceProfiles) -> Option<i64> {
    pid(&row.resource.as_ref()?.attributes)
}

pub(super) fn pid(attributes: &Attributes) -> Option<i64> {
    let pid = attributes.iter().find(|it| &*it.key == "process.pid")?;
    pid.value.as_int()
}

impl Renderer<'_> {
    fn resource(&mut self, row: &ResourceProfiles) -> ShownResource {
        let attributes = row.resource.as_ref().map(|it| &it.attributes[..]);
        let attributes = self.text.attributes(attributes.unwrap_or_default());
        let mut profiles = Vec::new();
        for profile in row.scopes.iter().flat_map(|it| &it.profiles) {
            match self.text.is_full() {
                true => self.omitted.profiles += 1,
                false => profiles.push(self.profile(profile)),
            }
        }
        ShownResource {
            attributes,
            profiles,
        }
    }

    fn profile(&mut self, profile: &Profile) -> ShownProfile {
        self.text.charge(OVERHEAD);
        let kind = profile.sample_type.unwrap_or_default();
        let (dictionary, sample_count) = (self.dictionary, profile.samples.len());
        let mut samples = Vec::new();
        for sample in profile.samples.iter().take(self.extract.samples) {
            if self.text.is_full() {
                break;
            }
            samples.push(self.sample(&sample));
        }
        self.omitted.samples += sample_count - samples.len();
        ShownProfile {
            r#type: self.text.text(dictionary.strings.get(kind.kind)),
            unit: self.text.text(dictionary.strings.get(kind.unit)),
            time_unix_nano: profile.time_unix_nano,
            duration_nano: profile.duration_nano,
            sample_count,
            samples,
        }
    }

    fn sample(&mut self, sample: &SampleRef<'_>) -> ShownSample {
        self.text
            .charge(OVERHEAD + OVERHEAD * sample.values.len().min(MAX_VALUES));
        let attributes = sample.attributes.iter().take(MAX_ATTRIBUTES);
        let attributes = attributes.filter_map(|&row| self.attribute(row)).collect();
        let (stack, omitted_frames) = self.stack(sample.stack);
        ShownSample {
            values: sample.values.iter().copied().take(MAX_VALUES).collect(),
            timestamps: sample.timestamps.len(),
            attributes,
            stack,
            omitted_frames,
        }
    }

    fn attribute(&mut self, row: AttributeIdx) -> Option<(String, Json)> {
        let dictionary = self.dictionary;
        let attribute = dictionary.attributes.get(row)?;
        let name = self.text.text(dictionary.strings.get(attribute.key));
        Some((name, self.text.attribute(&attribute.value)))
    }

    /// The innermost functions, and the number of omitted locations.
    fn stack(&mut self, stack: StackIdx) -> (Vec<String>, usize) {
        let locations = self.dictionary.stacks.get(stack);
        let (mut functions, mut rendered) = (Vec::new(), 0);
        for &location in locations {
            if functions.len() >= MAX_FRAMES || self.text.is_full() {
                break;
            }
            for name in self.functions(location) {
                functions.push(self.text.text(&name));
            }
            rendered += 1;
        }
        functions.reverse();
        (functions, locations.len() - rendered)
    }

    /// The functions at a location, innermost first.
    fn functions(&mut self, location: LocationIdx) -> Vec<String> {
        if !self.adder.is_named(location)
            && let Some(symbol) = self.symbols.find(self.dictionary, location)
            && let SymbolLookup::Resolved(names) = symbol.lookup()
        {
            return names.iter().map(|frame| frame.name.to_string()).collect();
        }
        let added = self.adder.add_to(&mut self.table, location).iter();
        added.rev().map(|&id| self.table.label(id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use profcol_component::testkit::{FakeSymbolizer, profiles};
    use profcol_component::{Batch, Kind, TapPoint};
    use profcol_profile::{
        KeyValue, LocationRef, Profiles, Resource, Samples, SharedResource, Value,
    };
    use serde_json::json;

    use super::*;

    const ALL: Extract = Extract {
        resources: 100,
        samples: 100,
        pid: None,
    };

    fn passed(profiles: Profiles) -> Passed {
        Passed {
            point: TapPoint {
                kind: Kind::Processor,
                id: "relabel/a".to_owned(),
                pipeline: Some("profiles".to_owned()),
                side: Side::Output,
            },
            time: UNIX_EPOCH + Duration::from_millis(1234),
            batch: Batch::new(profiles),
        }
    }

    fn with_attributes(attributes: Attributes) -> Profiles {
        let mut profiles = profiles(3);
        let resource = Resource {
            attributes,
            ..Resource::default()
        };
        profiles.replace_resources(vec![Some(SharedResource::new(resource))]);
        profiles
    }

    /// Replaces the samples by a single one with the stack that `add` returns.
    fn with_stack(
        mut profiles: Profiles,
        add: impl FnOnce(&mut Dictionary) -> StackIdx,
    ) -> Profiles {
        profiles.edit(|model| {
            let mut dictionary = Dictionary::clone(&model.dictionary);
            let stack = add(&mut dictionary);
            model.dictionary = dictionary.into();
            let mut samples = Samples::default();
            samples.push(SampleRef {
                stack,
                ..SampleRef::default()
            });
            let scope = &mut model.resources[0].scopes[0];
            scope.profiles = vec![scope.profiles[0].with_samples(samples).into()];
        });
        profiles
    }

    fn json_of(passed: &Passed, extract: Extract) -> Json {
        serde_json::to_value(shown(passed, extract).unwrap()).unwrap()
    }

    #[test]
    fn shows_resources_samples_and_stacks() {
        let nested = Value::Map([KeyValue::new("deep", true)].into());
        let attributes = vec![
            KeyValue::new("process.pid", 7),
            KeyValue::new("process.executable.name", "<b>a</b>"),
            KeyValue::new("nested", nested),
        ];
        let extract = Extract { samples: 1, ..ALL };
        let shown = json_of(&passed(with_attributes(attributes)), extract);
        assert_eq!(
            shown,
            json!({
                "component": "processor/relabel/a",
                "pipeline": "profiles",
                "side": "output",
                "time": 1234,
                "samples": 3,
                "resources": [{
                    "attributes": {"process.pid": 7, "process.executable.name": "<b>a</b>", "nested": {"deep": true}},
                    "profiles": [{
                        "type": "samples",
                        "unit": "count",
                        "time_unix_nano": 1_700_000_000_000_000_000_u64,
                        "duration_nano": 1_000_000_000,
                        "sample_count": 3,
                        "samples": [{"values": [1], "timestamps": 0, "attributes": {}, "stack": ["function_0"]}],
                    }],
                }],
                "omitted": {"resources": 0, "profiles": 0, "samples": 2},
            })
        );
    }

    #[test]
    fn shows_only_the_process_in_question() {
        let seven = passed(with_attributes(vec![KeyValue::new("process.pid", 7)]));
        let of = |pid| shown(&seven, Extract { pid, ..ALL }).map(|it| it.resources.len());
        assert_eq!(
            [of(Some(7)), of(Some(8)), of(None)],
            [Some(1), None, Some(1)]
        );
        let none = json_of(
            &seven,
            Extract {
                resources: 0,
                ..ALL
            },
        );
        assert_eq!(
            none["omitted"],
            json!({"resources": 1, "profiles": 0, "samples": 0})
        );
    }

    #[test]
    fn large_batches_are_cut() {
        let long = "ä".repeat(1024);
        let attributes = (0..1000).map(|number| KeyValue::new(&format!("{number}{long}"), &*long));
        let mut profiles = with_attributes(attributes.collect());
        profiles.edit(|model| {
            let row = model.resources[0].clone();
            model.resources.extend(std::iter::repeat_n(row, 99));
        });
        let shown = json_of(&passed(profiles), ALL);
        let length = shown.to_string().len();
        assert!(length < 3 * MAX_BATCH_TEXT / 2, "{length} bytes");
        let (resources, omitted) = (&shown["resources"], &shown["omitted"]);
        let shown = resources.as_array().unwrap().len() as u64;
        assert!((1..100).contains(&shown));
        assert_eq!(omitted["resources"], 100 - shown);
        let first = resources[0]["attributes"].as_object().unwrap();
        assert_eq!(first.len(), MAX_ATTRIBUTES);
        assert!(
            first
                .values()
                .all(|it| it.as_str().is_some_and(|it| it.ends_with('…')))
        );
    }

    #[test]
    fn deep_values_and_stacks_are_cut() {
        let mut deep = Value::Int(1);
        for _ in 0..100 {
            deep = Value::Array([deep].into());
        }
        let profiles = with_attributes(vec![KeyValue {
            key: "deep".into(),
            value: deep,
        }]);
        let profiles = with_stack(profiles, |dictionary| {
            let location = dictionary.stacks.get(StackIdx::new(1))[0];
            dictionary.stacks.push(&[location; 3 * MAX_FRAMES])
        });
        let shown = json_of(&passed(profiles), ALL);
        let resource = &shown["resources"][0];
        assert_eq!(resource["attributes"]["deep"], json!([[[["[…]"]]]]));
        let sample = &resource["profiles"][0]["samples"][0];
        assert_eq!(sample["stack"].as_array().unwrap().len(), MAX_FRAMES);
        assert_eq!(sample["omitted_frames"], 2 * MAX_FRAMES);
    }

    #[test]
    fn late_symbols_are_shown_once_known() {
        let profiles = with_stack(profiles(1), |dictionary| {
            let location = dictionary.locations.push(LocationRef::default());
            dictionary.stacks.push(&[location])
        });
        let symbolizer = FakeSymbolizer::new(|_| &["inner", "outer"]);
        let mut passed = passed(profiles);
        passed.batch.deferred_symbols = symbolizer.names();
        let stack = |passed| {
            json_of(passed, ALL)["resources"][0]["profiles"][0]["samples"][0]["stack"].clone()
        };
        assert_eq!(stack(&passed), json!(["[unknown]"]));
        symbolizer.finish();
        assert_eq!(stack(&passed), json!(["outer", "inner"]));
    }
}
