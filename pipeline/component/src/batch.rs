//! What flows through a pipeline: profiles and what is known of their sender.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use profcol_profile::Profiles;

use crate::{Answer, Finalizers, Outcome, Refusal};

/// Profiles on their way, with the sender's metadata and whoever waits for the outcome.
///
/// A clone shares all of it; each copy answers for itself to the finalizers.
#[derive(Clone, Debug)]
pub struct Batch {
    pub profiles: Profiles,
    pub metadata: Arc<Metadata>,
    /// The address from which it came, as long as all of it came from there.
    pub peer: Option<IpAddr>,
    pub finalizers: Finalizers,
}

/// Request headers of the client that sent the batch, by lower-case name; filled only by receivers
/// with `include_metadata: true`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Metadata(BTreeMap<String, Vec<String>>);

impl Batch {
    pub fn new(profiles: Profiles) -> Self {
        Self {
            profiles,
            metadata: Arc::default(),
            peer: None,
            finalizers: Finalizers::default(),
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

    /// Refuses the batch: tells whoever waits for it, and gives the answer to return.
    pub fn refuse(self, refusal: Refusal) -> Answer {
        self.finalizers.settle(refusal.outcome());
        Err(refusal)
    }

    /// Cuts the batch: every piece answers to those who wait for the whole.
    pub fn into_pieces(self, pieces: impl IntoIterator<Item = Profiles>) -> Vec<Batch> {
        let piece = |profiles| self.clone().with_profiles(profiles);
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
}

fn own((name, values): (&String, &Vec<String>)) -> (String, Vec<String>) {
    (name.clone(), values.clone())
}
