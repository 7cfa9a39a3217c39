//! Sleeps until the machine changes, so that a client that waits for events costs nothing while nothing happens.
//!
//! The store replaces its file by renaming, which inotify reports to each watcher of the directory. Where the system has no
//! watch left to give, a short sleep stands in for it.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use super::call::sleep;

/// The longest sleep at a time: what is no change of the machine (a shutdown by another thread) is seen after this.
const LONGEST: Duration = Duration::from_millis(500);

/// Without inotify.
const STEP: Duration = Duration::from_millis(20);

/// A watch on a directory.
pub(super) struct Watch {
    /// `None` when the system had none to give.
    inotify: Option<Descriptor>,
}

struct Descriptor(libc::c_int);

impl Watch {
    /// From here on, what is renamed into `directory` ends a sleep, also one that has not begun yet.
    pub(super) fn on(directory: &Path) -> Self {
        Self { inotify: watch(directory) }
    }

    /// Sleeps until something changes, for `longest` at most and often for less.
    pub(super) fn sleep(&self, longest: Duration) {
        let Some(Descriptor(inotify)) = self.inotify else {
            return sleep(STEP.min(longest));
        };
        // Rounded up: rounded down, the last millisecond would be spun away.
        let longest = longest.min(LONGEST).as_millis().saturating_add(1);
        let mut wanted = libc::pollfd { fd: inotify, events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure of ours, which lives through the call. What ends the wait does not matter: the caller looks.
        unsafe { libc::poll(&raw mut wanted, 1, i32::try_from(longest).unwrap_or(i32::MAX)) };
        let mut heard = [0_u8; 4096];
        // SAFETY: the buffer is ours and as long as is said; the descriptor does not block.
        unsafe { libc::read(inotify, heard.as_mut_ptr().cast(), heard.len()) };
    }
}

fn watch(directory: &Path) -> Option<Descriptor> {
    let path = CString::new(directory.as_os_str().as_bytes()).ok()?;
    // SAFETY: takes no pointer.
    let inotify = unsafe { libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) };
    let inotify = (inotify >= 0).then_some(Descriptor(inotify))?;
    let changes = libc::IN_MOVED_TO | libc::IN_DELETE_SELF;
    // SAFETY: the path ends with a zero and lives through the call.
    let watch = unsafe { libc::inotify_add_watch(inotify.0, path.as_ptr(), changes) };
    (watch >= 0).then_some(inotify)
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: opened by us, and closed once, here.
        unsafe { libc::close(self.0) };
    }
}
