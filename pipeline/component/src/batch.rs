//! The unit that flows through a pipeline: profiles and metadata about their sender.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use profcol_profile::Profiles;

use crate::{Answer, BatchId, DeferredSymbols, Finalizers, Outcome, Refusal};

/// Profiles in transit, with the sender's metadata and finalizers.
///
/// A clone shares everything; each copy reports its own outcome to the finalizers.
#[derive(Clone, Debug)]
pub struct Batch {
    pub profiles: Profiles,
    pub source: Source,
    /// Another pipeline takes the batch if this one refuses it. So an exporter refuses a live batch that it cannot take,
    /// instead of dropping it.
    pub has_alternative: bool,
    /// Identifies the batch on its whole way, also in other processes and after a restart.
    pub id: BatchId,
    /// Identifies a batch resent after a refusal, so that exporters that accepted it the first time do not get it
    /// twice. Unlike the `id`, it may be derived from the content, and never leaves the process: equal batches of two
    /// clients are two batches.
    pub resend_id: Option<BatchId>,
    pub metadata: Arc<Metadata>,
    /// The peer's address, if all of the batch came from one peer.
    pub peer: Option<IpAddr>,
    /// Resolves symbols that were unresolved when the batch was passed on.
    pub deferred_symbols: DeferredSymbols,
    pub finalizers: Finalizers,
}

/// How the source of a batch reacts to a retryable refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// Keeps the batch and resends it: a client, a file.
    #[default]
    Replayable,
    /// Keeps the batch until its outcome is known, and reports it itself: a recording.
    Recorded,
    /// Cannot wait, since the next batch is already being sampled. An exporter with a full queue drops and counts the
    /// batch, unless it [has an alternative](Batch::has_alternative); it never blocks other exporters.
    Live,
}

/// Request headers of the client that sent the batch, by lower-case name; filled only by receivers
/// with `include_metadata: true`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Metadata(BTreeMap<String, Vec<String>>);

impl Batch {
    pub fn new(profiles: Profiles) -> Self {
        Self {
            profiles,
            source: Source::default(),
            has_alternative: false,
            id: BatchId::unique(),
            resend_id: None,
            metadata: Arc::default(),
            peer: None,
            deferred_symbols: DeferredSymbols::default(),
            finalizers: Finalizers::default(),
        }
    }

    /// A live batch.
    pub fn live(profiles: Profiles) -> Self {
        let batch = Self {
            source: Source::Live,
            ..Self::new(profiles)
        };
        batch.resent_as_itself()
    }

    /// A batch of a source that keeps it, and pushes copies of it until one is delivered.
    pub fn recorded(profiles: Profiles) -> Self {
        let batch = Self {
            source: Source::Recorded,
            ..Self::new(profiles)
        };
        batch.resent_as_itself()
    }

    /// Whether an exporter that cannot take the batch drops it for itself alone.
    pub fn is_dropped_on_overflow(&self) -> bool {
        self.source == Source::Live && !self.has_alternative
    }

    pub fn with_id(mut self, id: BatchId) -> Self {
        self.id = id;
        self
    }

    pub fn with_resend_id(mut self, id: BatchId) -> Self {
        self.resend_id = Some(id);
        self
    }

    /// For a batch whose source keeps it with its id, and resends both.
    pub fn resent_as_itself(mut self) -> Self {
        self.resend_id = Some(self.id);
        self
    }

    /// Samples as their source counts them: for a sampling receiver, a stack seen n times is n samples; samples
    /// received over the wire are counted as received.
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

    /// The same batch without finalizers.
    pub fn detached(&self) -> Self {
        Self {
            profiles: self.profiles.clone(),
            source: self.source,
            has_alternative: self.has_alternative,
            id: self.id,
            resend_id: self.resend_id,
            metadata: Arc::clone(&self.metadata),
            peer: self.peer,
            deferred_symbols: self.deferred_symbols.clone(),
            finalizers: Finalizers::default(),
        }
    }

    /// Refuses the batch: settles its finalizers and returns the answer.
    pub fn refuse(self, refusal: Refusal) -> Answer {
        self.finalizers.settle(refusal.outcome());
        Err(refusal)
    }

    /// Splits the batch: every piece reports to the whole's finalizers and has its own id. None is resent as itself, as
    /// the source resends the whole.
    pub fn into_pieces(self, pieces: impl IntoIterator<Item = (BatchId, Profiles)>) -> Vec<Batch> {
        let piece = |(id, profiles)| Self {
            id,
            resend_id: None,
            ..self.clone().with_profiles(profiles)
        };
        let pieces = pieces.into_iter().map(piece).collect();
        self.finalizers.settle(Outcome::Delivered);
        pieces
    }

    /// Replaces the profiles; the finalizers wait for the new content.
    pub fn with_profiles(mut self, profiles: Profiles) -> Self {
        self.profiles = profiles;
        self
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

    /// Only the entries of `names`, the partition keys.
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
