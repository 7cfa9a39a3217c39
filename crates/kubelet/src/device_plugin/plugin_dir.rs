//! The kubelet's device plugin directory: events in it, and the identity of the running kubelet.
//!
//! The kubelet empties the directory at its start and may recreate it. Files that it writes for each pod are ignored.

use std::ffi::OsStr;
use std::fs;
use std::future::pending;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, Event, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tracing::{debug, warn};

/// The kubelet's socket in the device plugin directory. Source: k8s.io/kubelet, `deviceplugin/v1beta1/constants.go`.
pub(super) const KUBELET: &str = "kubelet.sock";
/// Prefix of our sockets.
pub(super) const SOCKET_PREFIX: &str = "octavo-";
/// Prefix of the sockets of NVIDIA's device plugin. Source: k8s-device-plugin, `internal/plugin`.
pub(super) const NVIDIA_SOCKET_PREFIX: &str = "nvidia";
/// File name extension of sockets.
pub(super) const SOCKET_SUFFIX: &str = ".sock";
/// Buffer size in bytes, enough for dozens of events.
const EVENT_BUFFER_BYTES: usize = 4096;

/// Identity of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    device: u64,
    inode: u64,
    seconds: i64,
    nanoseconds: i64,
}

/// Identity of a kubelet process, which changes with each start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KubeletInstance {
    identity: FileIdentity,
    /// How often the creation of its socket was observed, because a new file may have the same identity as the old one.
    creations: u64,
}

/// The watched directory.
#[derive(Debug)]
pub(super) struct PluginDir {
    path: PathBuf,
    inotify: Option<AsyncFd<OwnedFd>>,
    creations: u64,
    /// A relevant event was read that [`PluginDir::changed`] has not returned for yet.
    is_changed: bool,
}

impl FileIdentity {
    /// Returns the identity of the file at `path`, if there is one.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let file = fs::symlink_metadata(path).ok()?;
        Some(Self {
            device: file.dev(),
            inode: file.ino(),
            seconds: file.mtime(),
            nanoseconds: file.mtime_nsec(),
        })
    }
}

impl PluginDir {
    /// Watches `path` if the kernel permits it. Callers also poll in case it does not.
    pub(super) fn new(path: &Path) -> Self {
        let flags = CreateFlags::NONBLOCK | CreateFlags::CLOEXEC;
        let inotify = inotify::init(flags).map_err(std::io::Error::from);
        #[expect(
            deprecated,
            reason = "the replacement is unsafe; an OwnedFd fulfills its conditions: the descriptor stays valid and open"
        )]
        let inotify = inotify.and_then(AsyncFd::new);
        if let Err(error) = &inotify {
            warn!(path = %path.display(), %error, "cannot watch the directory; polling it");
        }
        Self { path: path.to_owned(), inotify: inotify.ok(), creations: 0, is_changed: false }
    }

    /// Returns the directory's path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds watches for the current directory, which may have been recreated.
    pub(super) fn watch(&self) {
        let Some(inotify) = &self.inotify else { return };
        let inside = WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let beside = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        if let Err(error) = inotify::add_watch(inotify.get_ref(), &self.path, inside) {
            debug!(path = %self.path.display(), %error, "cannot watch the directory");
        }
        let parent = self.path.parent().map(|parent| (parent, beside));
        if let Some((parent, flags)) = parent
            && let Err(error) = inotify::add_watch(inotify.get_ref(), parent, flags)
        {
            debug!(path = %parent.display(), %error, "cannot watch the directory");
        }
    }

    /// Returns the running kubelet, if its socket exists.
    pub(super) fn kubelet(&mut self) -> Option<KubeletInstance> {
        loop {
            let creations = self.creations;
            let identity = FileIdentity::read(&self.path.join(KUBELET));
            // The socket of a new kubelet can be seen before the event of its creation is read. With the event unread, the same
            // kubelet would count as another one later.
            self.read_events();
            if self.creations == creations {
                return identity.map(|identity| KubeletInstance { identity, creations });
            }
        }
    }

    /// Waits for a relevant event. Cancel-safe.
    pub(super) async fn changed(&mut self) {
        while !std::mem::take(&mut self.is_changed) {
            let Some(inotify) = &self.inotify else {
                return pending().await;
            };
            let Ok(mut ready) = inotify.readable().await else {
                return pending().await;
            };
            ready.clear_ready();
            self.read_events();
        }
    }

    fn read_events(&mut self) {
        let Some(inotify) = &self.inotify else { return };
        let dir_name = self.path.file_name().unwrap_or_default();
        let (concerns, kubelets) = drain(inotify.get_ref(), dir_name);
        self.is_changed |= concerns;
        self.creations = self.creations.saturating_add(kubelets);
    }
}

/// Reads all events. Returns whether one is relevant, and how often the kubelet's socket was created.
fn drain(inotify: impl AsFd, dir_name: &OsStr) -> (bool, u64) {
    let mut buffer = [MaybeUninit::uninit(); EVENT_BUFFER_BYTES];
    let mut reader = Reader::new(inotify, &mut buffer);
    let (mut concerns, mut kubelets) = (false, 0_u64);
    loop {
        match reader.next() {
            Ok(event) => {
                let is_kubelet = is_made(&event) && name(&event) == Some(OsStr::new(KUBELET));
                kubelets = kubelets.saturating_add(u64::from(is_kubelet));
                concerns |= is_kubelet || is_relevant(&event, dir_name);
            }
            Err(Errno::INTR) => {}
            Err(_) => return (concerns, kubelets),
        }
    }
}

fn name<'a>(event: &'a Event<'_>) -> Option<&'a OsStr> {
    event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()))
}

fn is_made(event: &Event<'_>) -> bool {
    let made = ReadFlags::CREATE | ReadFlags::MOVED_TO;
    event.events().intersects(made)
}

fn is_relevant(event: &Event<'_>, dir_name: &OsStr) -> bool {
    let Some(name) = name(event) else {
        // The directory was removed, or the kernel's event queue overflowed.
        return true;
    };
    let text = name.to_string_lossy();
    let is_gone = !is_made(event) && text.starts_with(SOCKET_PREFIX);
    let is_others = text.starts_with(NVIDIA_SOCKET_PREFIX) && text.ends_with(SOCKET_SUFFIX);
    is_gone || is_others || name == dir_name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn kubelet_is_the_same_before_and_after_the_event_of_its_creation() {
        let directory = tempfile::tempdir().unwrap();
        let mut plugin_dir = PluginDir::new(directory.path());
        plugin_dir.watch();
        fs::write(directory.path().join(KUBELET), "").unwrap();
        let seen = plugin_dir.kubelet();
        assert!(seen.is_some());
        // The event is still reported.
        plugin_dir.changed().await;
        assert_eq!(plugin_dir.kubelet(), seen);
    }
}
