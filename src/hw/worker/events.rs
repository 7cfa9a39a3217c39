//! The thread that waits for what the hardware says by itself.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread;

use super::{Message, Shared};
use crate::hw::{EventSource, Heard};

/// A thread that listens to one event source until it is told to stop or the source fails.
#[derive(Debug)]
pub(super) struct Thread {
    stop: Arc<AtomicBool>,
}

impl Thread {
    /// Starts it; it tells `outbox` when it has dropped `source`.
    pub(super) fn spawn(
        mut source: Box<dyn EventSource>,
        life: u64,
        shared: Arc<Shared>,
        outbox: Sender<Message>,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let listen = move || {
            let mut error = None;
            while error.is_none() && !stopped.load(Ordering::Relaxed) {
                match source.wait() {
                    Ok(Heard::Something) => shared.say_news(),
                    Ok(Heard::Nothing) => {}
                    Err(failure) => error = Some(failure),
                }
            }
            drop(source);
            // The worker is gone when the program ends, and then nobody needs to know.
            let _gone = outbox.send(Message::EventsEnded { life, error });
        };
        thread::Builder::new()
            .name("nvml-events".to_owned())
            .spawn(listen)?;
        Ok(Self { stop })
    }

    /// Ends it after the wait that is under way.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
