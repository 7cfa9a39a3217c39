//! Stream of items that a background task produces.
//!
//! The task is aborted when the stream is dropped. When the task fails, the stream ends and its reader reconnects.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::Stream;

/// Stream that owns its task.
#[derive(Debug)]
pub struct TaskStream<T> {
    items: mpsc::Receiver<T>,
    /// Aborted when dropped.
    _task: JoinSet<()>,
}

impl<T> TaskStream<T> {
    /// Starts the task with a channel for at most `waiting` unread items.
    pub fn start<F>(waiting: usize, make: impl FnOnce(mpsc::Sender<T>) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, items) = mpsc::channel(waiting);
        let mut task = JoinSet::new();
        task.spawn(make(sender));
        Self { items, _task: task }
    }
}

impl<T> Stream for TaskStream<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.items.poll_recv(context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::time::timeout;
    use tokio_stream::StreamExt;

    use super::*;

    #[tokio::test]
    async fn task_and_stream_end_together() {
        let (held, ended) = oneshot::channel::<()>();
        let mut feed = TaskStream::start(1, |sender| async move {
            let _held = held;
            let _read = sender.send(1).await;
            pending::<()>().await;
        });
        assert_eq!(feed.next().await, Some(1));
        drop(feed);
        let ended = timeout(Duration::from_mins(1), ended).await;
        assert!(ended.unwrap().is_err());
        let mut feed = TaskStream::start(1, |sender: mpsc::Sender<u8>| async move {
            let _read = sender.send(1).await;
        });
        assert_eq!((feed.next().await, feed.next().await), (Some(1), None));
    }
}
