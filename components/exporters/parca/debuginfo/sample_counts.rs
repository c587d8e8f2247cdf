//! The number of samples per file.

use std::collections::HashMap;

use profcol_parca::Frames;
use profcol_profile::{LocationIdx, Model, StackIdx};

/// Counts samples by build ID, for wanted files whose code is not symbolized.
pub fn sample_counts(model: &Model, mut is_wanted: impl FnMut(&str) -> bool) -> HashMap<&str, u64> {
    let frames = Frames::new(model);
    let dictionary = &model.dictionary;
    let mut decided: HashMap<&str, bool> = HashMap::new();
    let build_ids: Vec<Option<&str>> = (0..dictionary.locations.rows().len())
        .map(|row| {
            let frame = frames.frame(LocationIdx::new(u32::try_from(row).ok()?));
            // Locations with lines are symbolized.
            let is_nameless = frame.lines.is_empty() && !frame.build_id.is_empty();
            let build_id = is_nameless.then_some(frame.build_id)?;
            let is_wanted = *decided
                .entry(build_id)
                .or_insert_with(|| is_wanted(build_id));
            is_wanted.then_some(build_id)
        })
        .collect();
    let mut sample_counts = HashMap::new();
    if build_ids.iter().all(Option::is_none) {
        return sample_counts;
    }
    let mut stack_build_ids: Vec<&str> = Vec::new();
    for (stack, samples) in stacks(model) {
        let locations = dictionary.stacks.get(stack).iter();
        let files = locations.filter_map(|location| *build_ids.get(location.row())?);
        stack_build_ids.clear();
        stack_build_ids.extend(files);
        stack_build_ids.sort_unstable();
        stack_build_ids.dedup();
        for build_id in &stack_build_ids {
            let count: &mut u64 = sample_counts.entry(*build_id).or_default();
            *count = count.saturating_add(samples);
        }
    }
    sample_counts
}

fn stacks(model: &Model) -> HashMap<StackIdx, u64> {
    let mut stacks = HashMap::new();
    for profile in model.profiles() {
        for sample in profile.samples.iter() {
            let count: &mut u64 = stacks.entry(sample.stack).or_default();
            *count = count.saturating_add(sample.observed().unsigned_abs());
        }
    }
    stacks
}
