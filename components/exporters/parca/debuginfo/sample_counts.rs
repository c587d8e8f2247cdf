//! The number of samples per file.

use std::collections::HashMap;

use profcol_parca::Frames;
use profcol_profile::{LocationIdx, Model, StackIdx};

/// By build ID, for files that matter and whose code is not symbolized.
pub fn sample_counts(model: &Model, mut matters: impl FnMut(&str) -> bool) -> HashMap<&str, u64> {
    let frames = Frames::new(model);
    let dictionary = &model.dictionary;
    let mut decided: HashMap<&str, bool> = HashMap::new();
    let of_locations: Vec<Option<&str>> = (0..dictionary.locations.rows().len())
        .map(|row| {
            let frame = frames.frame(LocationIdx::new(u32::try_from(row).ok()?));
            // Locations with lines are symbolized.
            let is_nameless = frame.lines.is_empty() && !frame.build_id.is_empty();
            let build_id = is_nameless.then_some(frame.build_id)?;
            let matters = decided.entry(build_id).or_insert_with(|| matters(build_id));
            matters.then_some(build_id)
        })
        .collect();
    let mut sample_counts = HashMap::new();
    if of_locations.iter().all(Option::is_none) {
        return sample_counts;
    }
    let mut of_stack: Vec<&str> = Vec::new();
    for (stack, samples) in stacks(model) {
        let locations = dictionary.stacks.get(stack).iter();
        let files = locations.filter_map(|location| *of_locations.get(location.row())?);
        of_stack.clear();
        of_stack.extend(files);
        of_stack.sort_unstable();
        of_stack.dedup();
        for build_id in &of_stack {
            let weight: &mut u64 = sample_counts.entry(*build_id).or_default();
            *weight = weight.saturating_add(samples);
        }
    }
    sample_counts
}

fn stacks(model: &Model) -> HashMap<StackIdx, u64> {
    let mut stacks = HashMap::new();
    for profile in model.profiles() {
        for sample in profile.samples.iter() {
            let of_stack: &mut u64 = stacks.entry(sample.stack).or_default();
            *of_stack = of_stack.saturating_add(sample.observed().unsigned_abs());
        }
    }
    stacks
}
