//! Desired and observed state of a task.
//!
//! The owner of a task sets what is desired and reads what was observed, and waits for neither. Receivers are notified
//! only of values that differ.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

/// Sends a value if it differs from the current one. Returns whether it does.
pub fn send_if_changed<T: PartialEq>(sender: &watch::Sender<T>, value: T) -> bool {
    sender.send_if_modified(|current| {
        let differs = *current != value;
        *current = value;
        differs
    })
}

/// Changes the current value, and notifies receivers if it differs afterwards.
pub fn update<T: Clone + PartialEq>(sender: &watch::Sender<T>, change: impl FnOnce(&mut T)) {
    sender.send_if_modified(|current| {
        let before = current.clone();
        change(current);
        *current != before
    });
}

/// The owner's end. The task ends when it is dropped.
#[derive(Debug)]
pub struct TaskHandle<D, O> {
    desired: watch::Sender<Desired<D>>,
    /// The latest observation.
    pub observed: watch::Receiver<O>,
}

/// The task's end.
#[derive(Debug)]
pub struct TaskState<D, O> {
    /// The latest desired state.
    pub desired: watch::Receiver<Desired<D>>,
    /// Publishes observations.
    pub observed: watch::Sender<O>,
}

/// A desired state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Desired<D> {
    /// Number of changes so far.
    pub generation: u64,
    /// The state.
    pub state: D,
}

/// Creates both ends.
pub fn channel<D: Default, O: Default>() -> (TaskHandle<D, O>, TaskState<D, O>) {
    let (desired, desired_receiver) = watch::channel(Desired::default());
    let (observed_sender, observed) = watch::channel(O::default());
    let state = TaskState { desired: desired_receiver, observed: observed_sender };
    (TaskHandle { desired, observed }, state)
}

impl<D: Clone + PartialEq, O> TaskHandle<D, O> {
    /// Sets the desired state.
    pub fn set(&self, state: D) {
        self.update(|current| *current = state);
    }

    /// Changes the desired state.
    pub fn update(&self, change: impl FnOnce(&mut D)) {
        self.desired.send_if_modified(|desired| {
            let before = desired.state.clone();
            change(&mut desired.state);
            let differs = desired.state != before;
            desired.generation = desired.generation.saturating_add(u64::from(differs));
            differs
        });
    }

    /// Waits until `is_done` for an observation and the generation of the current desired state. Has no timeout.
    pub async fn wait_until(&self, is_done: impl Fn(&O, u64) -> bool) {
        let generation = self.desired.borrow().generation;
        let mut observed = self.observed.clone();
        let _gone = observed.wait_for(|observed| is_done(observed, generation)).await;
    }
}

impl<D: Clone, O> TaskState<D, O> {
    /// Returns the desired state. The next [`Self::wait`] waits for a later one.
    pub fn latest(&mut self) -> D {
        self.desired.borrow_and_update().state.clone()
    }

    /// Waits for another desired state, at most for `delay` if there is one. Returns `false` once the handle is dropped.
    pub async fn wait(&mut self, delay: Option<Duration>) -> bool {
        tokio::select! {
            changed = self.desired.changed() => changed.is_ok(),
            () = sleep(delay.unwrap_or_default()), if delay.is_some() => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn task_sees_differences_until_its_handle_is_dropped() {
        let (handle, mut task) = channel::<u8, u8>();
        handle.set(7);
        handle.set(7);
        assert!(task.wait(None).await);
        assert_eq!(task.latest(), 7);
        assert!(!task.desired.has_changed().unwrap());
        assert_eq!(task.desired.borrow().generation, 1);
        assert!(send_if_changed(&task.observed, 3));
        assert!(!send_if_changed(&task.observed, 3));
        handle.wait_until(|observed, generation| (*observed, generation) == (3, 1)).await;
        drop(handle);
        assert!(!task.wait(None).await);
    }
}
