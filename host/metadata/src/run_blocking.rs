//! Blocking file I/O, off the threads that process batches.

/// Returns the result of the work, or the default at shutdown.
pub async fn run_blocking<T: Default + Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime is shutting down.
        Err(_) => T::default(),
    }
}
