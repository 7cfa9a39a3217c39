//! Runs `nvidia-smi` to set time slices: outside the loop, one call at a time.

use std::future::pending;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use octavo_engine::program;
use octavo_node::sharing::slice_length::{SetSliceLength, SliceInput, SliceLengths};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::info;

/// Result of a call, once it has ended.
type CallResult = Option<Result<(), String>>;

/// Runs the calls that set time slices.
#[derive(Debug)]
pub(super) struct TimeSliceSetter {
    program: PathBuf,
    slices: SliceLengths,
    /// The running call, with the task that waits for it.
    running: Option<(SetSliceLength, watch::Receiver<CallResult>, JoinSet<()>)>,
}

impl TimeSliceSetter {
    /// Creates a setter that runs `program`, an absolute path.
    pub(super) fn new(program: PathBuf) -> Self {
        Self { program, slices: SliceLengths::default(), running: None }
    }

    /// Always collects a call that has ended: until then [`TimeSliceSetter::changed`] is immediately ready again. Then starts
    /// the call that is due, if the desired time slices are known.
    pub(super) fn step(&mut self, now: Duration, input: Option<SliceInput<'_>>) {
        self.collect_result(now);
        if let Some(order) = input.and_then(|input| self.slices.reconcile(now, input)) {
            let (result, task) = self.start(&order);
            self.running = Some((order, result, task));
        }
    }

    /// Returns the time slices' state.
    pub(super) fn slices(&self) -> &SliceLengths {
        &self.slices
    }

    /// Waits until a call has ended. Cancel-safe.
    pub(super) async fn changed(&mut self) {
        match &mut self.running {
            Some((_, result, _)) => {
                let _or_it_ended_without_an_answer = result.changed().await;
            }
            None => pending().await,
        }
    }

    fn collect_result(&mut self, now: Duration) {
        let Some((order, result, _)) = &self.running else {
            return;
        };
        let is_over = result.has_changed().is_err();
        let result = result.borrow().clone();
        let outcome = match result {
            Some(outcome) => outcome,
            None if is_over => Err("the task ended without a result".to_owned()),
            None => return,
        };
        if outcome.is_ok() {
            let duration = order.length.map_or("default", |length| length.as_str());
            info!(device = %order.pci, uuid = %order.uuid.as_str(), %duration, "time-slice duration set");
        }
        self.slices.done(now, outcome);
        self.running = None;
    }

    fn start(&self, order: &SetSliceLength) -> (watch::Receiver<CallResult>, JoinSet<()>) {
        let (sender, result) = watch::channel(None);
        let program = self.program.clone();
        let arguments = [
            "compute-policy".to_owned(),
            "-i".to_owned(),
            order.uuid.as_str().to_owned(),
            "--set-timeslice".to_owned(),
            order.number().to_string(),
        ];
        let mut task = JoinSet::new();
        task.spawn(async move {
            let done = program::run(&program, arguments, Stdio::null()).await;
            sender.send_replace(Some(done));
        });
        (result, task)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use octavo_planner::layout::TimeSlice;

    use super::*;

    #[tokio::test]
    async fn finished_call_wakes_only_once_without_desired_slices() {
        let mut setter = TimeSliceSetter::new(PathBuf::from("/nonexistent/nvidia-smi"));
        let order = SetSliceLength {
            pci: "00000000:07:00.0".parse().unwrap(),
            uuid: "GPU-0a0a0a0a-0000-0000-0000-000000000001".parse().unwrap(),
            length: Some(TimeSlice::Short),
        };
        let (answer, task) = setter.start(&order);
        setter.running = Some((order, answer, task));
        setter.changed().await;
        setter.step(Duration::ZERO, None);
        let mut now = Context::from_waker(Waker::noop());
        assert!(pin!(setter.changed()).poll(&mut now).is_pending());
    }
}
