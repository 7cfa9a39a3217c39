//! Sleeps until the machine changes, so that a client waiting for events uses no processor time.
//!
//! The store replaces its file by renaming, which inotify reports to watchers of the directory. If the system has no
//! watch available, a short sleep replaces it.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use super::call::sleep;

/// The longest sleep at a time: events other than a change of the machine (a shutdown by another thread) are seen after
/// this.
const LONGEST: Duration = Duration::from_millis(500);

/// Interval without inotify.
const STEP: Duration = Duration::from_millis(20);

/// A watch on a directory.
pub(super) struct Watch {
    /// `None` if the system had none available.
    inotify: Option<Descriptor>,
}

struct Descriptor(libc::c_int);

impl Watch {
    /// From now on, a rename into `directory` ends a sleep, also one that starts later.
    pub(super) fn on(directory: &Path) -> Self {
        Self { inotify: watch(directory) }
    }

    /// Sleeps until a change, at most for `longest` and often for less.
    pub(super) fn sleep(&self, longest: Duration) {
        let Some(Descriptor(inotify)) = self.inotify else {
            return sleep(STEP.min(longest));
        };
        // Rounded up, or the last millisecond would be a busy loop.
        let longest = longest.min(LONGEST).as_millis().saturating_add(1);
        let mut wanted = libc::pollfd { fd: inotify, events: libc::POLLIN, revents: 0 };
        // SAFETY: one local structure that outlives the call. The result does not matter: the caller checks.
        unsafe { libc::poll(&raw mut wanted, 1, i32::try_from(longest).unwrap_or(i32::MAX)) };
        let mut events = [0_u8; 4096];
        // SAFETY: the buffer is a local of this length; the descriptor does not block.
        unsafe { libc::read(inotify, events.as_mut_ptr().cast(), events.len()) };
    }
}

fn watch(directory: &Path) -> Option<Descriptor> {
    let path = CString::new(directory.as_os_str().as_bytes()).ok()?;
    // SAFETY: has no pointer argument.
    let inotify = unsafe { libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) };
    let inotify = (inotify >= 0).then_some(Descriptor(inotify))?;
    let changes = libc::IN_MOVED_TO | libc::IN_DELETE_SELF;
    // SAFETY: the path is NUL-terminated and outlives the call.
    let watch = unsafe { libc::inotify_add_watch(inotify.0, path.as_ptr(), changes) };
    (watch >= 0).then_some(inotify)
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: opened by this type and closed only here.
        unsafe { libc::close(self.0) };
    }
}
