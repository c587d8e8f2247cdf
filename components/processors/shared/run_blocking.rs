//! Work that reads files, beside the threads that move batches.

/// What it comes to; nothing where this process is about to end.
pub(crate) async fn run_blocking<T: Default + Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime is shutting down.
        Err(_) => T::default(),
    }
}
