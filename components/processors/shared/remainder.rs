//! Passes on the remaining part of a batch.

use profcol_component::{Answer, Batch, Consumer, Outcome};
use profcol_profile::{Model, Profiles, gc};

/// Passes on only this part of a batch; if it is empty, the batch is done. Count dropped samples
/// only if the answer is `Ok`: a refused batch is sent again.
pub(crate) async fn push_remainder(batch: Batch, left: Model, next: &dyn Consumer) -> Answer {
    if left.resources.is_empty() {
        batch.finalizers.settle(Outcome::Delivered);
        return Ok(());
    }
    let left = Profiles::from_model(gc(&left));
    next.consume(batch.with_profiles(left)).await
}
