//! Passing on what is left of a batch.

use profcol_component::{Answer, Batch, Consumer, Outcome};
use profcol_profile::{Model, Profiles, ResourceProfiles, gc};

/// Passes on only these resources of a batch; where none is left, the batch is done. What was
/// dropped is counted only where the answer is `Ok`: what is refused comes again.
pub(crate) async fn pass_left(
    batch: Batch,
    resources: Vec<ResourceProfiles>,
    next: &dyn Consumer,
) -> Answer {
    if resources.is_empty() {
        batch.finalizers.settle(Outcome::Delivered);
        return Ok(());
    }
    let left = gc(&Model {
        dictionary: batch.profiles.model().dictionary.clone(),
        resources,
    });
    next.consume(batch.with_profiles(Profiles::from_model(left)))
        .await
}
