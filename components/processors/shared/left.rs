//! Passing on what is left of a batch.

use profcol_component::{Answer, Batch, Consumer, Outcome};
use profcol_profile::{Model, Profiles, gc};

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
