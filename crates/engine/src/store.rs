//! The state directory with lock, journal and history. Only the process that holds the lock changes a node's devices.

mod interrupted;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use octavo_files::history::{self, Attempt, DeviceAttempt};
use octavo_files::journal::{self, JournalError};
use octavo_model::id::PciAddress;
use octavo_model::reason::Reason;
use octavo_planner::reconcile::ApplyRecord;
use octavo_toolkit::files::{self, ReadError};
use thiserror::Error;

pub use self::interrupted::{InterruptedChanges, interrupted};
use self::interrupted::{unreadable_journals, unreadable_notices, unreadable_paths};
use super::durable::{self, DurableError, failed};

/// Journal size limit in bytes, above the journal size of a node with sixteen devices.
const MAX_JOURNAL_BYTES: u64 = 4 << 20;
/// History size limit in bytes. A longer history is cut to its newer half.
const MAX_HISTORY_BYTES: u64 = 1 << 20;

/// The state directory, locked while this value exists.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    /// Kept open: the lock is released when this file is closed or the process ends.
    _lock: File,
}

/// An error that makes the state directory unusable.
#[derive(Debug, Error)]
pub enum StoreError {
    /// A file or directory in it cannot be used.
    #[error(transparent)]
    File(#[from] DurableError),
    /// The directory is writable by others, who could use it to have a GPU repartitioned.
    #[error("{} is owned or writable by another user; change its owner and set mode 0700", .0.display())]
    Unsafe(PathBuf),
    /// Another agent or command is currently changing this node.
    #[error("{} and holds {}", describe_holder(.by.as_ref()), .path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The lock's holder, if known.
        by: Option<LockHolder>,
    },
}

/// The process that holds the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockHolder {
    /// Process ID, if this process can see it: process IDs differ between containers.
    pub pid: Option<u32>,
    /// Program name as in the history: `agent`, `command` or `mig-parted`.
    pub by: String,
}

/// The content of the journal.
#[derive(Debug)]
pub enum JournalState {
    /// No change is recorded.
    Empty,
    /// This change was started and may be incomplete.
    Interrupted(ApplyRecord),
    /// The journal exists but cannot be parsed. It was moved aside for an administrator.
    Unreadable {
        /// The file's new path.
        path: PathBuf,
        /// The parse error.
        reason: JournalError,
    },
}

impl Store {
    /// Opens `dir`, creates it if it does not exist, and locks it for this process under the name `by`.
    pub fn open(state_dir: &Path, by: &str) -> Result<Self, StoreError> {
        // The directory is private because its files name layouts and other users' processes.
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(state_dir).map_err(failed("create the directory", state_dir))?;
        if is_writable_by_others(state_dir).map_err(failed("read the permissions of", state_dir))? {
            return Err(StoreError::Unsafe(state_dir.to_owned()));
        }
        let path = state_dir.join("lock");
        let mut options = OpenOptions::new();
        let options = options.create(true).read(true).write(true).truncate(false);
        let mut lock = durable::open(options, &path).map_err(failed("open", &path))?;
        match lock.try_lock() {
            Ok(()) => {
                // Only used in messages, so a full disk must not prevent the engine from running.
                let _unnamed =
                    lock.set_len(0).and_then(|()| writeln!(lock, "{} {by}", std::process::id()));
                Ok(Self { dir: state_dir.to_owned(), _lock: lock })
            }
            Err(TryLockError::WouldBlock) => {
                let by = holder(&mut lock);
                Err(StoreError::Locked { path, by })
            }
            Err(TryLockError::Error(source)) => Err(failed("lock", &path)(source).into()),
        }
    }

    /// Reads the journal. An unreadable journal is moved aside until it is discarded; the next apply starts from the
    /// state of the hardware.
    pub fn journal(&self) -> Result<JournalState, StoreError> {
        let path = self.journal_path();
        let Some(bytes) = read(&path, MAX_JOURNAL_BYTES)? else {
            return Ok(JournalState::Empty);
        };
        match journal::parse(&bytes) {
            Ok(record) => Ok(JournalState::Interrupted(record)),
            Err(reason) => {
                let copy = self.unreadable_path();
                fs::rename(&path, &copy).map_err(failed("move aside", &path))?;
                Ok(JournalState::Unreadable { path: copy, reason })
            }
        }
    }

    /// Writes the journal durably: after a crash at any time, the file holds the previous or the new journal.
    pub fn write_journal(&self, record: &ApplyRecord) -> Result<(), StoreError> {
        let text = journal::write(record);
        let draft = self.dir.join("journal.draft");
        durable::replace(&self.journal_path(), &draft, text.as_bytes(), 0o600)?;
        Ok(())
    }

    /// Removes the journal after every change has ended.
    pub fn clear(&self) -> Result<(), StoreError> {
        Ok(durable::remove(&self.journal_path())?)
    }

    /// Appends to the history. The history is informational, so its last lines may be lost in a crash.
    pub fn append_history(&self, attempt: &Attempt) -> Result<(), StoreError> {
        let path = history_path(&self.dir);
        self.truncate_history(&path)?;
        let mut options = OpenOptions::new();
        let options = options.create(true).read(true).append(true);
        let mut file = durable::open(options, &path).map_err(failed("open", &path))?;
        let mut line = history::line(attempt);
        if lacks_line_end(&mut file).map_err(failed("read", &path))? {
            line.insert(0, '\n');
        }
        Ok(file.write_all(line.as_bytes()).map_err(failed("write", &path))?)
    }

    /// Returns the ID of the last plan in the history, so that the reported plan survives a restart or another program
    /// taking over.
    pub fn last_plan(&self) -> Option<String> {
        let text = history_text(&self.dir).ok()?;
        history::last(&text).map(|attempt| attempt.plan)
    }

    /// Returns whether the history records `plan` as applied to the device at `pci`.
    pub fn has_applied(&self, plan: &str, pci: PciAddress) -> bool {
        let pci = pci.to_string();
        let is_applied =
            |device: &DeviceAttempt| device.pci == pci && device.result == Reason::Applied;
        let attempts = history(&self.dir).unwrap_or_default();
        let mut attempts = attempts.iter().filter(|attempt| attempt.plan == plan);
        attempts.any(|attempt| attempt.devices.iter().any(is_applied))
    }

    /// Reports the unreadable journals that are not yet discarded, with the reason for each.
    pub fn unreadable(&self) -> Vec<String> {
        unreadable_notices(&self.dir)
    }

    /// Discards unreadable journals and returns their paths.
    pub fn discard_unreadable(&self) -> Result<Vec<PathBuf>, StoreError> {
        let all: Vec<PathBuf> = unreadable_journals(&self.dir).collect();
        for path in &all {
            durable::remove(path)?;
        }
        Ok(all)
    }

    fn truncate_history(&self, path: &Path) -> Result<(), StoreError> {
        let length = fs::metadata(path).map_or(0, |file| file.len());
        if length <= MAX_HISTORY_BYTES {
            return Ok(());
        }
        let start = (length / 2).max(length.saturating_sub(MAX_HISTORY_BYTES));
        let mut file = files::open(path).map_err(|error| failed("read", path)(error.into()))?;
        let half = file
            .seek(SeekFrom::Start(start))
            .and_then(|_| files::prefix_of(file, MAX_HISTORY_BYTES))
            .map_err(failed("read", path))?;
        let line = half.iter().position(|byte| *byte == b'\n').unwrap_or(0);
        let newer = half.get(line.saturating_add(1)..).unwrap_or_default();
        let draft = self.dir.join("history.draft");
        Ok(durable::replace(path, &draft, newer, 0o644)?)
    }

    /// Returns the layout for which the node was last rebooted, unless that reboot has been cleared.
    pub fn last_reboot_layout(&self) -> Result<Option<String>, StoreError> {
        let bytes = read(&self.reboot_path(), MAX_JOURNAL_BYTES)?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Records that the node will be rebooted for this layout.
    pub fn record_reboot(&self, layout: &str) -> Result<(), StoreError> {
        let draft = self.dir.join("rebooted.draft");
        Ok(durable::replace(&self.reboot_path(), &draft, layout.as_bytes(), 0o600)?)
    }

    /// Removes the record of a reboot that succeeded or is no longer needed.
    pub fn clear_reboot(&self) -> Result<(), StoreError> {
        Ok(durable::remove(&self.reboot_path())?)
    }

    fn reboot_path(&self) -> PathBuf {
        self.dir.join("rebooted")
    }

    /// Returns the path for an unreadable journal: the next free name, or the first one if all are taken.
    fn unreadable_path(&self) -> PathBuf {
        let mut free = unreadable_paths(&self.dir).skip_while(|path| path.exists());
        free.next().unwrap_or_else(|| self.dir.join("journal.unreadable"))
    }

    fn journal_path(&self) -> PathBuf {
        self.dir.join("journal")
    }
}

/// Reads the lock's holder from the lock file.
fn holder(lock: &mut File) -> Option<LockHolder> {
    const LONGEST: u64 = 64;
    let text = String::from_utf8(files::prefix_of(lock, LONGEST).ok()?).ok()?;
    let (pid, by) = text.trim_end().split_once(' ')?;
    let pid: u32 = pid.parse().ok()?;
    // The number may come from another container and mean a different process here.
    let comm = PathBuf::from(format!("/proc/{pid}/comm"));
    let name = files::text(&comm, LONGEST).unwrap_or_default();
    let is_ours = ["octavo", "nvidia-mig"].iter().any(|ours| name.starts_with(ours));
    Some(LockHolder { pid: is_ours.then_some(pid), by: by.to_owned() })
}

fn describe_holder(by: Option<&LockHolder>) -> String {
    let Some(LockHolder { pid, by }) = by else {
        return "another process is changing the devices of this node".to_owned();
    };
    let pid = pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
    match by.as_str() {
        "agent" => format!("octavo-agent is running{pid}"),
        "mig-parted" => format!("octavo mig-parted is running{pid}"),
        _ => format!("another octavo apply is running{pid}"),
    }
}

/// Reads the history in `dir`, oldest entry first. Does not need the lock.
pub fn history(state_dir: &Path) -> Result<Vec<Attempt>, StoreError> {
    Ok(history::parse(&history_text(state_dir)?))
}

fn history_text(state_dir: &Path) -> Result<String, StoreError> {
    let bytes = read(&history_path(state_dir), MAX_HISTORY_BYTES * 2)?;
    Ok(String::from_utf8_lossy(bytes.as_deref().unwrap_or_default()).into_owned())
}

fn history_path(state_dir: &Path) -> PathBuf {
    state_dir.join("history.jsonl")
}

/// Returns whether other users may write to the directory, whose content is trusted.
fn is_writable_by_others(dir: &Path) -> io::Result<bool> {
    let data = fs::metadata(dir)?;
    let own = rustix::process::geteuid().as_raw();
    let owner = data.uid();
    Ok((owner != own && owner != 0) || data.mode() & 0o002 != 0)
}

/// Returns whether the last line lacks its line end.
fn lacks_line_end(file: &mut File) -> io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// Reads a file; `None` if it does not exist.
fn read(path: &Path, longest: u64) -> Result<Option<Vec<u8>>, StoreError> {
    match files::read_prefix(path, longest) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(ReadError::Missing(_)) => Ok(None),
        Err(error) => Err(failed("read", path)(error.into()).into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use octavo_planner::layout::MigTarget;
    use octavo_planner::reconcile::ApplyRecordEntry;
    use octavo_toolkit::error::chain;

    use super::*;

    fn record() -> ApplyRecord {
        ApplyRecord {
            plan: "p".to_owned(),
            layout: "l".to_owned(),
            devices: vec![ApplyRecordEntry {
                pci: "0000:07:00.0".parse().unwrap(),
                uuid: None,
                plan: "p".to_owned(),
                layout: "l".to_owned(),
                previous: None,
                target: MigTarget::Disabled,
            }],
        }
    }

    fn attempt(plan: &str) -> Attempt {
        Attempt {
            time: "2026-11-21T12:00:00Z".to_owned(),
            plan: plan.to_owned(),
            layout: "l".to_owned(),
            by: "agent".to_owned(),
            duration_ms: 3,
            devices: Vec::new(),
        }
    }

    #[test]
    fn state_directory_is_locked_exclusively() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b");
        let store = Store::open(&path, "command").unwrap();
        let error = Store::open(&path, "agent").unwrap_err();
        let own = std::process::id();
        let message = format!("another octavo apply is running (pid {own}) and holds ");
        assert!(error.to_string().starts_with(&message), "{error}");
        drop(store);
        Store::open(&path, "command").unwrap();
    }

    #[test]
    fn journal_persists_until_removed() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), "command").unwrap();
        assert!(matches!(store.journal().unwrap(), JournalState::Empty));
        store.write_journal(&record()).unwrap();
        assert!(
            matches!(store.journal().unwrap(), JournalState::Interrupted(found) if found == record())
        );
        store.clear().unwrap();
        store.clear().unwrap();
        assert!(matches!(store.journal().unwrap(), JournalState::Empty));
    }

    #[test]
    fn i12_unreadable_journal_is_moved_aside_and_reported() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), "command").unwrap();
        store.write_journal(&record()).unwrap();
        let path = directory.path().join("journal");
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let JournalState::Unreadable { path: copy, reason } = store.journal().unwrap() else {
            panic!("an incomplete journal is readable");
        };
        assert!(reason.to_string().contains("incomplete or corrupted"), "{reason}");
        assert_eq!(fs::read(copy).unwrap(), whole[..whole.len() / 2]);
        assert!(matches!(store.journal().unwrap(), JournalState::Empty));
    }

    #[test]
    fn unreadable_journal_is_reported_until_it_is_discarded() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), "command").unwrap();
        fs::write(directory.path().join("journal"), "octavo-journal 1 9 0\n").unwrap();
        let [message] = &interrupted(directory.path()).unreadable[..] else {
            panic!("an unreadable journal is not reported");
        };
        assert!(message.contains("incomplete or corrupted"), "{message}");
        assert!(matches!(store.journal().unwrap(), JournalState::Unreadable { .. }));
        store.write_journal(&record()).unwrap();
        store.clear().unwrap();
        let [message] = &interrupted(directory.path()).unreadable[..] else {
            panic!("the unreadable journal is not retained");
        };
        assert!(message.contains("journal.unreadable"), "{message}");
        assert_eq!(store.unreadable().len(), 1);
        assert_eq!(store.discard_unreadable().unwrap().len(), 1);
        assert_eq!(interrupted(directory.path()), InterruptedChanges::default());
    }

    #[test]
    fn i12_fifo_is_an_error_and_does_not_block() {
        for name in ["journal", "lock", "history.jsonl", "rebooted"] {
            let directory = tempfile::tempdir().unwrap();
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
            let path = directory.path().join(name);
            rustix::fs::mknodat(
                rustix::fs::CWD,
                &path,
                rustix::fs::FileType::Fifo,
                rustix::fs::Mode::from_raw_mode(0o600),
                0,
            )
            .unwrap();
            let error = match Store::open(directory.path(), "command") {
                Err(error) => error,
                Ok(store) => match name {
                    "journal" => store.journal().unwrap_err(),
                    "rebooted" => store.last_reboot_layout().unwrap_err(),
                    _ => store.append_history(&attempt("1")).unwrap_err(),
                },
            };
            assert!(chain(&error).contains("not a regular file"), "{error:?}");
        }
    }

    #[test]
    fn i4_failed_journal_write_keeps_previous_journal() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), "command").unwrap();
        store.write_journal(&record()).unwrap();
        // A directory at the draft's path fails like a full or read-only disk, and for root as well.
        fs::create_dir(directory.path().join("journal.draft")).unwrap();
        let other = ApplyRecord { plan: "other".to_owned(), ..record() };
        let error = store.write_journal(&other).unwrap_err();
        assert!(error.to_string().starts_with("cannot write "), "{error}");
        assert!(
            matches!(store.journal().unwrap(), JournalState::Interrupted(found) if found == record())
        );
    }

    #[test]
    fn history_survives_incomplete_line_and_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), "command").unwrap();
        store.append_history(&attempt("1")).unwrap();
        let path = history_path(directory.path());
        let mut torn = fs::read(&path).unwrap();
        torn.extend_from_slice(b"{\"time\":\"2026");
        fs::write(&path, torn).unwrap();
        store.append_history(&attempt("2")).unwrap();
        let plans = || -> Vec<String> {
            let all = history(directory.path()).unwrap().into_iter();
            all.map(|attempt| attempt.plan).collect()
        };
        assert_eq!(plans(), ["1", "2"]);
        assert_eq!(store.last_plan().as_deref(), Some("2"));
        let line = history::line(&attempt("3")).len();
        let many = 2 * usize::try_from(MAX_HISTORY_BYTES).unwrap() / line;
        for _ in 0..many {
            store.append_history(&attempt("3")).unwrap();
        }
        assert!(fs::metadata(&path).unwrap().len() <= MAX_HISTORY_BYTES + 1000);
        assert!(plans().len() > many / 4);
    }
}
