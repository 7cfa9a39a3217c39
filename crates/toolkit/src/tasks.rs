//! Owned tasks.

use tokio::task::{JoinError, JoinSet};

/// Resolves when one of `tasks` panics. Tasks may end before the program does.
pub async fn first_panic<T: 'static>(tasks: &mut JoinSet<T>) -> JoinError {
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended
            && error.is_panic()
        {
            return error;
        }
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panicked_task_is_detected_and_finished_task_is_not() {
        let mut tasks = JoinSet::new();
        tasks.spawn(async {});
        tasks.spawn(async { panic!("on purpose") });
        assert!(first_panic(&mut tasks).await.is_panic());
    }
}
