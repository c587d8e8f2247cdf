//! Profiles and samples.

use super::{Walk, id_length, once, utf8};
use crate::proto::Reader;
use crate::wire::fields::fields;
use crate::wire::invalid::{Fault, Invalid, Reason, WithPath};
use crate::wire::tags::profile;
use crate::wire::window::Window;
use crate::wire::{fast_path, rows};

impl Walk<'_> {
    pub(super) fn profile(&mut self, message: &[u8], bad: Option<Reason>) -> Result<(), Invalid> {
        let first_sample = self.counts.samples;
        let head = self.profile_head(message)?;
        let bad = head.bad.or(bad);
        if !head.window.contains(&head.seen) {
            self.timestamps(message, &head.window, first_sample)?;
        }
        if self.repair {
            self.count_bad(first_sample, bad);
        }
        self.counts.profiles += 1;
        Ok(())
    }

    /// Checks a profile but only collects timestamps: its time and duration follow its samples.
    fn profile_head(&mut self, message: &[u8]) -> Result<Head, Invalid> {
        let mut head = Head::default();
        let (mut time, mut duration) = (0, 0);
        let (mut format, mut payload) = (false, false);
        let (mut sample_types, mut period_types) = (0, 0);
        let mut samples = 0;
        self.lists.attributes.clear();
        let mut attributes = Vec::new();
        let mut reader = Reader::new(message);
        while let Some(tag) = reader.tag()? {
            match tag {
                profile::SAMPLES => {
                    let result = self.sample(reader.bytes()?, &mut head.seen);
                    let result = result.item("samples", samples);
                    if let Some(why) = self.note(result)? {
                        self.skip.samples.insert(self.counts.samples, why);
                    }
                    samples += 1;
                    self.counts.samples += 1;
                }
                profile::TIME => time = reader.fixed64()?,
                profile::DURATION => duration = reader.varint()?,
                profile::PERIOD | profile::DROPPED_ATTRIBUTES => drop(reader.varint()?),
                profile::PAYLOAD => payload = !reader.bytes()?.is_empty(),
                profile::ATTRIBUTES => reader.packed_uint32(&mut attributes)?,
                profile::ATTRIBUTE => attributes.push(reader.uint32()?.into()),
                profile::SAMPLE_TYPE => {
                    sample_types += 1;
                    let result = self.value_type(reader.bytes()?).field("sample_type");
                    head.bad = head.bad.or(self.note(result)?);
                }
                profile::PERIOD_TYPE => {
                    period_types += 1;
                    let result = self.value_type(reader.bytes()?).field("period_type");
                    head.bad = head.bad.or(self.note(result)?);
                }
                profile::PROFILE_ID => {
                    let result = id_length(reader.bytes()?, 16).field("profile_id");
                    head.bad = head.bad.or(self.note(result)?);
                }
                profile::PAYLOAD_FORMAT => {
                    let text = reader.bytes()?;
                    format = !text.is_empty();
                    let result = utf8(text).field("original_payload_format");
                    head.bad = head.bad.or(self.note(result)?);
                }
                unknown => reader.skip(unknown, profile::KNOWN)?,
            }
        }
        once(sample_types, profile::SAMPLE_TYPE)?;
        once(period_types, profile::PERIOD_TYPE)?;
        self.lists.attributes = attributes;
        let attributes = self.attribute_list();
        head.bad = head.bad.or(self.note(attributes)?);
        if format != payload {
            let result = Err(Fault::HalfPayload.into());
            head.bad = head.bad.or(self.note(result)?);
        }
        head.window = Window::of_profile(time, duration);
        Ok(head)
    }

    fn value_type(&self, message: &[u8]) -> Result<(), Invalid> {
        let value_type = rows::value_type(message)?;
        self.strings.check(value_type.kind).field("type_strindex")?;
        self.strings.check(value_type.unit).field("unit_strindex")
    }

    #[inline(always)]
    fn sample(&mut self, message: &[u8], seen: &mut Window) -> Result<(), Invalid> {
        if !self.repair
            && let Some(sample) = fast_path::sample(message, &self.keys)
            && self.stacks.check(sample.stack).is_ok()
            && self.links.check(sample.link).is_ok()
            && self.attributes.check(sample.attribute).is_ok()
        {
            seen.extend(sample.seen);
            return Ok(());
        }
        self.unusual_sample(message, seen)
    }

    #[inline(never)]
    pub(super) fn unusual_sample(
        &mut self,
        message: &[u8],
        seen: &mut Window,
    ) -> Result<(), Invalid> {
        let sample = rows::sample(message, &mut self.lists)?;
        for &timestamp in &self.lists.timestamps {
            seen.extend(Window::at(timestamp));
        }
        if sample.has_old_attributes {
            return Err(Fault::OldLayout.into());
        }
        self.sample_row(&sample)
            .map_err(|invalid| self.suspect_old_layout(invalid))
    }

    fn sample_row(&mut self, sample: &rows::SampleHead) -> Result<(), Invalid> {
        self.stacks.check(sample.stack).field("stack_index")?;
        self.links.check(sample.link).field("link_index")?;
        self.attribute_list()?;
        let values = self.lists.values.len();
        let timestamps = self.lists.timestamps.len();
        match (values, timestamps) {
            (0, 0) => Err(Fault::NoObservation.into()),
            (0, _) | (1, 0) => Ok(()),
            (values, 0) => Err(Fault::ManyValues { values }.into()),
            _ if values == timestamps => Ok(()),
            _ => Err(Fault::Mismatch { values, timestamps }.into()),
        }
    }

    /// Up to proto 1.9 field 2 held the values, which are rarely valid attribute indices.
    #[cold]
    fn suspect_old_layout(&self, invalid: Invalid) -> Invalid {
        let lists = &self.lists;
        let nothing_seen = lists.values.is_empty() && lists.timestamps.is_empty();
        if nothing_seen && !lists.attributes.is_empty() && !self.repair {
            return Fault::OldLayout.into();
        }
        invalid
    }

    /// Finds samples with timestamps outside the profile.
    #[cold]
    fn timestamps(
        &mut self,
        message: &[u8],
        window: &Window,
        first_sample: usize,
    ) -> Result<(), Invalid> {
        for (position, sample) in fields(message, profile::SAMPLES).enumerate() {
            rows::sample(sample?, &mut self.lists)?;
            let outside = |timestamp: &&u64| !window.contains(&Window::at(**timestamp));
            let Some(&timestamp) = self.lists.timestamps.iter().find(outside) else {
                continue;
            };
            let (start, end) = (window.start, window.end);
            let fault = Err(Fault::OutsideProfile {
                timestamp,
                start,
                end,
            });
            let result = fault
                .field("timestamps_unix_nano")
                .item("samples", position);
            if let Some(why) = self.note(result)? {
                let ordinal = first_sample + position;
                self.skip.samples.entry(ordinal).or_insert(why);
            }
        }
        Ok(())
    }

    fn count_bad(&mut self, first_sample: usize, profile: Option<Reason>) {
        if let Some(why) = profile {
            self.skip.profiles.insert(self.counts.profiles);
            let samples = self.counts.samples - first_sample;
            *self.bad.entry(why).or_default() += samples;
            return;
        }
        for &why in self.skip.samples.range(first_sample..).map(|(_, why)| why) {
            *self.bad.entry(why).or_default() += 1;
        }
    }
}

#[derive(Default)]
struct Head {
    window: Window,
    seen: Window,
    /// The fault of the profile itself, which makes all its samples bad.
    bad: Option<Reason>,
}
