//! Sockets of a kubelet that has run for a while.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use tokio::net::UnixListener;

/// Listens like a kubelet that has run for an hour: a restarted one may not know its pods and is not trusted.
pub(crate) fn listen_as_old(path: &Path) -> UnixListener {
    // Under another name first, so that no client sees it with a recent time.
    let draft = path.with_extension("draft");
    let listener = UnixListener::bind(&draft).unwrap();
    age(&draft);
    fs::rename(draft, path).unwrap();
    listener
}

/// Makes a socket an hour old.
pub(crate) fn age(path: &Path) {
    let made = SystemTime::now() - Duration::from_hours(1);
    let made = made.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let made = Timespec {
        tv_sec: made.as_secs().try_into().unwrap(),
        tv_nsec: made.subsec_nanos().into(),
    };
    let times = Timestamps { last_access: made, last_modification: made };
    utimensat(CWD, path, &times, AtFlags::empty()).unwrap();
}
