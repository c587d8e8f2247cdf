//! What flows through a pipeline: profiles and what is known of their sender.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use profcol_profile::Profiles;
use twox_hash::XxHash3_128;

use crate::{Answer, DeferredSymbols, Finalizers, Outcome, Refusal};

/// Profiles on their way, with the sender's metadata and whoever waits for the outcome.
///
/// A clone shares all of it; each copy answers for itself to the finalizers.
#[derive(Clone, Debug)]
pub struct Batch {
    pub profiles: Profiles,
    pub source: Source,
    /// What the batch has in common with itself when it is sent again after a refusal, so that
    /// those who took it the first time are not given it twice.
    pub id: Option<BatchId>,
    pub metadata: Arc<Metadata>,
    /// The address from which it came, as long as all of it came from there.
    pub peer: Option<IpAddr>,
    /// Where to ask for names that were not there yet when it was passed on.
    pub deferred_symbols: DeferredSymbols,
    pub finalizers: Finalizers,
}

/// What the source of a batch does when the batch is refused for now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// It keeps the batch and sends it again: a client, a file.
    #[default]
    Replayable,
    /// It keeps the batch until it is known what became of it, and says so itself: a recording.
    Recorded,
    /// It cannot wait, since the next batch is already being sampled. An exporter whose queue is
    /// full drops the batch and counts it; it never holds up the others.
    Live,
}

/// Tells a batch that is sent again from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchId(u128);

/// Request headers of the client that sent the batch, by lower-case name; filled only by receivers
/// with `include_metadata: true`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Metadata(BTreeMap<String, Vec<String>>);

impl Batch {
    pub fn new(profiles: Profiles) -> Self {
        Self {
            profiles,
            source: Source::default(),
            id: None,
            metadata: Arc::default(),
            peer: None,
            deferred_symbols: DeferredSymbols::default(),
            finalizers: Finalizers::default(),
        }
    }

    /// A batch whose source cannot wait.
    pub fn live(profiles: Profiles) -> Self {
        Self {
            source: Source::Live,
            id: Some(BatchId::unique()),
            ..Self::new(profiles)
        }
    }

    pub fn with_id(mut self, id: BatchId) -> Self {
        self.id = Some(id);
        self
    }

    /// Samples as their source counts them: the stack of a sampling receiver that was seen n times
    /// is n samples, and what came over the wire is counted as it came.
    pub fn source_samples(&self) -> u64 {
        match self.source {
            Source::Live => self.profiles.observation_count(),
            Source::Replayable | Source::Recorded => self.profiles.sample_count() as u64,
        }
    }

    pub fn with_metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = Arc::new(metadata);
        self
    }

    pub fn with_peer(mut self, peer: Option<IpAddr>) -> Self {
        self.peer = peer;
        self
    }

    /// The same batch, for which nobody waits.
    pub fn without_finalizers(&self) -> Self {
        Self {
            profiles: self.profiles.clone(),
            source: self.source,
            id: self.id,
            metadata: Arc::clone(&self.metadata),
            peer: self.peer,
            deferred_symbols: self.deferred_symbols.clone(),
            finalizers: Finalizers::default(),
        }
    }

    /// Refuses the batch: tells whoever waits for it, and gives the answer to return.
    pub fn refuse(self, refusal: Refusal) -> Answer {
        self.finalizers.settle(refusal.outcome());
        Err(refusal)
    }

    /// Cuts the batch: every piece answers to those who wait for the whole, and none is the batch
    /// that its source would send again.
    pub fn into_pieces(self, pieces: impl IntoIterator<Item = Profiles>) -> Vec<Batch> {
        let piece = |profiles| Self {
            id: None,
            ..self.clone().with_profiles(profiles)
        };
        let pieces = pieces.into_iter().map(piece).collect();
        self.finalizers.settle(Outcome::Delivered);
        pieces
    }

    /// The same batch with other content: whoever waits for it waits for the new content.
    pub fn with_profiles(mut self, profiles: Profiles) -> Self {
        self.profiles = profiles;
        self
    }
}

impl BatchId {
    /// Of a batch whose content a client sends again byte by byte.
    pub fn of_content(content: &[u8]) -> Self {
        Self(XxHash3_128::oneshot(content))
    }

    /// Of a batch that its source itself keeps and offers again.
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(u128::from(NEXT.fetch_add(1, Ordering::Relaxed)))
    }
}

impl Metadata {
    pub fn add(&mut self, name: &str, value: &str) {
        self.0
            .entry(name.to_ascii_lowercase())
            .or_default()
            .push(value.to_owned());
    }

    pub fn get(&self, name: &str) -> &[String] {
        self.0
            .get(&name.to_ascii_lowercase())
            .map_or(&[], Vec::as_slice)
    }

    /// Only the entries of `names`, which decide into which batch something goes.
    pub fn restricted_to(&self, names: &[String]) -> Metadata {
        let keep = names.iter().map(|name| name.to_ascii_lowercase());
        Metadata(
            keep.filter_map(|name| self.0.get_key_value(&name))
                .map(own)
                .collect(),
        )
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each name with its values.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (&str, &[String])> {
        let entries = self.0.iter();
        entries.map(|(name, values)| (name.as_str(), values.as_slice()))
    }
}

fn own((name, values): (&String, &Vec<String>)) -> (String, Vec<String>) {
    (name.clone(), values.clone())
}
