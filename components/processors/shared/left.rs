//! Passing on what is left of a batch.

use profcol_component::{Answer, Batch, Consumer, Outcome};
use profcol_profile::{Model, Profiles, ResourceProfiles, gc};

/// These of the resources of a batch, in its tables.
pub(crate) fn left_of(profiles: &Profiles, resources: Vec<ResourceProfiles>) -> Model {
    Model {
        dictionary: profiles.model().dictionary.clone(),
        resources,
    }
}

/// Passes on only this of a batch; where nothing is left, the batch is done. What was dropped is
/// counted only where the answer is `Ok`: what is refused comes again.
pub(crate) async fn pass_left(batch: Batch, left: Model, next: &dyn Consumer) -> Answer {
    if left.resources.is_empty() {
        batch.finalizers.settle(Outcome::Delivered);
        return Ok(());
    }
    let left = Profiles::from_model(gc(&left));
    next.consume(batch.with_profiles(left)).await
}
