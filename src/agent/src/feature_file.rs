//! Labels as an NFD feature file, which node-feature-discovery's worker reads and turns into node labels.
//!
//! The file is replaced atomically (written next to it, synced, renamed), so that no reader and no crash ever sees
//! half of it. It remains when the agent exits: labels that vanish whenever a pod restarts raise alarms and evict
//! workloads. For a node whose agent never returns, the file carries an expiry time, which the agent extends while it
//! runs, even if NVML is stalled. One agent owns the file: it holds a lock in the same directory, so that two agents
//! never overwrite each other. Format: NFD, "Feature files": `# +expiry-time=<RFC 3339>`, `key=value` lines, 64 kB at
//! most, dot-files ignored.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use octavo_engine::durable;
use octavo_node::label_set::LabelSet;
use octavo_settings::duration::Expiry;
use octavo_toolkit::files::{self, ReadError};

use crate::sink::{Evidence, LabelSink, Publication, Published, SinkError};

/// The file's reader is another user's process, whatever the agent's umask is.
const FILE_MODE: u32 = 0o644;
const EXPIRY_PREFIX: &str = "# +expiry-time=";
const MAX_FILE_BYTES: usize = 64 * 1000;
/// Maximum number of bytes read of an existing file: enough to detect that another program wrote it.
const MAX_READ_BYTES: u64 = MAX_FILE_BYTES as u64 + 100;

/// Label sink that writes an NFD feature file.
#[derive(Debug)]
pub struct FeatureFile {
    path: PathBuf,
    expiry: Expiry,
    /// Held from the first write until the agent exits.
    lock: Option<File>,
}

/// Content of a feature file.
#[derive(Debug, PartialEq, Eq)]
struct FeatureFileContent {
    expires: Option<Timestamp>,
    labels: String,
}

impl FeatureFile {
    /// Creates a sink that maintains the file at `path`.
    pub fn new(path: PathBuf, expiry: Expiry) -> Self {
        Self { path, expiry, lock: None }
    }

    /// Writes the file if it is due. It is read every time because another process may have removed or edited it;
    /// reading does not count as a write.
    fn write(
        &mut self,
        labels: &LabelSet,
        evidence: Evidence,
        now: Timestamp,
    ) -> Result<Published, SinkError> {
        let found = read(&self.path)?;
        let wanted = match (&found, evidence) {
            (Some(found), Evidence::NotRead) => found.labels.clone(),
            (Some(_) | None, Evidence::Read | Evidence::NotRead) => labels.to_string(),
        };
        let outcome = match found {
            Some(found) if found.labels != wanted => Published::Changed,
            None => Published::Changed,
            Some(found) if self.is_due(found.expires, now) => Published::Refreshed,
            Some(_) => return Ok(Published::Unchanged),
        };
        let content = FeatureFileContent { expires: self.expires(now), labels: wanted };
        let text = content.to_string();
        if text.len() > MAX_FILE_BYTES {
            return Err(SinkError::TooLarge {
                path: self.path.clone(),
                bytes: text.len(),
                limit: MAX_FILE_BYTES,
            });
        }
        let place = FeatureFilePaths::new(&self.path);
        fs::create_dir_all(place.dir).map_err(failed("create the directory", place.dir))?;
        if self.lock.is_none() {
            self.lock = Some(place.lock(&self.path)?);
        }
        durable::replace(&self.path, &place.draft, text.as_bytes(), FILE_MODE)?;
        Ok(outcome)
    }

    fn expires(&self, now: Timestamp) -> Option<Timestamp> {
        match self.expiry {
            Expiry::Never => None,
            Expiry::After(span) => now.checked_add(span).ok(),
        }
    }

    /// Returns whether less than half of the lifetime is left, or the file's expiry does not match the setting.
    fn is_due(&self, expires: Option<Timestamp>, now: Timestamp) -> bool {
        match (self.expiry, expires) {
            (Expiry::Never, expires) => expires.is_some(),
            (Expiry::After(_), None) => true,
            (Expiry::After(span), Some(expires)) => {
                let left = expires.duration_since(now);
                let span = SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX);
                left < span / 2 || left > span
            }
        }
    }
}

#[tonic::async_trait]
impl LabelSink for FeatureFile {
    // Blocking on purpose: one small write to a local directory, and no other part of the agent waits for a sink.
    async fn publish(&mut self, publication: Publication<'_>) -> Result<Published, SinkError> {
        self.write(publication.labels, publication.evidence, publication.now)
    }
}

impl std::fmt::Display for FeatureFileContent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(expires) = self.expires {
            // NFD reads whole seconds.
            writeln!(f, "{EXPIRY_PREFIX}{expires:.0}")?;
        }
        f.write_str(&self.labels)
    }
}

/// Returns the content of the file; `None` if it does not exist or cannot have been written by the agent. A FIFO, a
/// device and a directory are an error: replacing one would take it from its owner.
fn read(path: &Path) -> Result<Option<FeatureFileContent>, SinkError> {
    match files::text(path, MAX_READ_BYTES) {
        Ok(text) => Ok(parse(text)),
        Err(ReadError::NotARegularFile) => Err(SinkError::NotAFile(path.to_owned())),
        Err(_) => Ok(None),
    }
}

fn parse(text: String) -> Option<FeatureFileContent> {
    let Some(rest) = text.strip_prefix(EXPIRY_PREFIX) else {
        return Some(FeatureFileContent { expires: None, labels: text });
    };
    let (expires, labels) = rest.split_once('\n')?;
    Some(FeatureFileContent { expires: Some(expires.parse().ok()?), labels: labels.to_owned() })
}

/// Paths of the file and of its companions: dot-files, which NFD does not read.
struct FeatureFilePaths<'a> {
    dir: &'a Path,
    /// In the same directory, so that renaming is atomic.
    draft: PathBuf,
    lock: PathBuf,
}

impl<'a> FeatureFilePaths<'a> {
    fn new(path: &'a Path) -> Self {
        let dir = durable::parent_dir(path);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Self {
            dir,
            draft: dir.join(format!(".{name}.draft")),
            lock: dir.join(format!(".{name}.lock")),
        }
    }

    /// Acquires the lock, which is released when the returned file is dropped or the process exits.
    fn lock(&self, path: &Path) -> Result<File, SinkError> {
        let file = File::options()
            .create(true)
            .append(true)
            .open(&self.lock)
            .map_err(failed("open", &self.lock))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => {
                Err(SinkError::OwnedByAnother { path: path.to_owned(), lock: self.lock.clone() })
            }
            Err(TryLockError::Error(source)) => Err(failed("lock", &self.lock)(source)),
        }
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SinkError {
    let path = path.to_owned();
    move |source| SinkError::File { action, path, source }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::time::Duration;

    use super::*;

    fn label_set(labels: &[(&str, &str)]) -> LabelSet {
        labels.iter().map(|(key, value)| (key.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn noon() -> Timestamp {
        "2026-11-21T12:00:00Z".parse().unwrap()
    }

    fn hours(hours: u64) -> Duration {
        Duration::from_hours(hours)
    }

    #[test]
    fn file_has_expiry_and_sorted_labels() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("features.d/octavo");
        let mut sink = FeatureFile::new(path.clone(), Expiry::After(hours(1)));
        let labels = label_set(&[("octavo.dev/type", "nvidia-t4-16gb"), ("octavo.dev/count", "1")]);
        assert_eq!(sink.write(&labels, Evidence::Read, noon()).unwrap(), Published::Changed);
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "# +expiry-time=2026-11-21T13:00:00Z\noctavo.dev/count=1\noctavo.dev/type=nvidia-t4-16gb\n"
        );
    }

    #[test]
    fn unchanged_labels_cause_no_write_even_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("octavo");
        let labels = label_set(&[("octavo.dev/count", "8")]);
        let mut sink = FeatureFile::new(path.clone(), Expiry::After(hours(2)));
        assert_eq!(sink.write(&labels, Evidence::Read, noon()).unwrap(), Published::Changed);
        let before = fs::metadata(&path).unwrap();
        let mut restarted = FeatureFile::new(path.clone(), Expiry::After(hours(2)));
        assert_eq!(
            restarted.write(&labels, Evidence::Read, noon() + hours(1)).unwrap(),
            Published::Unchanged
        );
        let after = fs::metadata(&path).unwrap();
        assert_eq!((before.ino(), before.mtime_nsec()), (after.ino(), after.mtime_nsec()));
    }

    #[test]
    fn expiry_is_extended_after_half_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("octavo");
        let labels = label_set(&[("octavo.dev/count", "8")]);
        let mut sink = FeatureFile::new(path.clone(), Expiry::After(hours(2)));
        sink.write(&labels, Evidence::Read, noon()).unwrap();
        let later = noon() + hours(1) + Duration::from_secs(1);
        assert_eq!(sink.write(&labels, Evidence::Read, later).unwrap(), Published::Refreshed);
        assert_eq!(read(&path).unwrap().unwrap().expires, Some(later + hours(2)));
    }

    #[test]
    fn expiry_is_corrected_after_the_clock_is_set_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("octavo");
        let labels = label_set(&[("octavo.dev/count", "8")]);
        let mut sink = FeatureFile::new(path, Expiry::After(hours(2)));
        sink.write(&labels, Evidence::Read, noon() + hours(1000)).unwrap();
        assert_eq!(sink.write(&labels, Evidence::Read, noon()).unwrap(), Published::Refreshed);
    }

    #[test]
    fn edited_or_torn_file_is_rewritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("octavo");
        let labels = label_set(&[("octavo.dev/count", "8")]);
        let mut sink = FeatureFile::new(path.clone(), Expiry::Never);
        for text in ["", "octavo.dev/count=9\n", "# +expiry-time=never", "\u{fffd}"] {
            fs::write(&path, text).unwrap();
            assert_eq!(
                sink.write(&labels, Evidence::Read, noon()).unwrap(),
                Published::Changed,
                "{text:?}"
            );
            assert_eq!(fs::read_to_string(&path).unwrap(), "octavo.dev/count=8\n");
        }
    }

    #[test]
    fn file_is_world_readable() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("octavo");
        let draft = directory.path().join(".octavo.draft");
        fs::write(&draft, "draft of an earlier run").unwrap();
        fs::set_permissions(&draft, Permissions::from_mode(0o600)).unwrap();
        let mut sink = FeatureFile::new(path.clone(), Expiry::Never);
        sink.write(&label_set(&[]), Evidence::Read, noon()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
    }

    #[test]
    fn unread_hardware_does_not_replace_published_labels() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("octavo");
        let (read, guessed) =
            (label_set(&[("octavo.dev/driver", "570.1")]), label_set(&[("octavo.dev/count", "8")]));
        let mut before = FeatureFile::new(path.clone(), Expiry::After(hours(2)));
        before.write(&read, Evidence::Read, noon()).unwrap();
        drop(before);
        let mut restarted = FeatureFile::new(path.clone(), Expiry::After(hours(2)));
        let later = noon() + hours(1) + Duration::from_secs(1);
        let published = restarted.write(&guessed, Evidence::NotRead, later).unwrap();
        assert_eq!(published, Published::Refreshed);
        let content = super::read(&path).unwrap().unwrap();
        assert_eq!((content.labels, content.expires), (read.to_string(), Some(later + hours(2))));
        fs::remove_file(&path).unwrap();
        let published = restarted.write(&guessed, Evidence::NotRead, later).unwrap();
        assert_eq!(published, Published::Changed);
    }

    #[test]
    fn second_agent_reports_that_the_file_is_owned() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("octavo");
        let (one_label, other_label) = (label_set(&[("a", "1")]), label_set(&[("a", "2")]));
        let mut one = FeatureFile::new(path.clone(), Expiry::Never);
        let mut other = FeatureFile::new(path.clone(), Expiry::Never);
        one.write(&one_label, Evidence::Read, noon()).unwrap();
        let error = other.write(&other_label, Evidence::Read, noon()).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "{} belongs to another agent, which holds the lock {}",
                path.display(),
                directory.path().join(".octavo.lock").display()
            )
        );
        drop(one);
        let taken = other.write(&other_label, Evidence::Read, noon()).unwrap();
        assert_eq!(taken, Published::Changed);
    }

    #[test]
    fn non_regular_file_is_an_error_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let endless = directory.path().join("endless");
        std::os::unix::fs::symlink("/dev/zero", &endless).unwrap();
        for path in [pipe, endless, directory.path().to_owned()] {
            let before = fs::symlink_metadata(&path).unwrap().ino();
            let mut sink = FeatureFile::new(path.clone(), Expiry::Never);
            let error = sink.write(&label_set(&[]), Evidence::Read, noon()).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("{} exists and is not a regular file", path.display())
            );
            assert_eq!(fs::symlink_metadata(&path).unwrap().ino(), before);
        }
    }

    #[test]
    fn unwritable_directory_is_an_error_and_the_old_file_stays() {
        let directory = tempfile::tempdir().unwrap();
        let blocked = directory.path().join("file");
        fs::write(&blocked, "a file").unwrap();
        let mut sink = FeatureFile::new(blocked.join("octavo"), Expiry::Never);
        let error = sink
            .write(&label_set(&[("octavo.dev/count", "8")]), Evidence::Read, noon())
            .unwrap_err();
        assert_eq!(error.to_string(), format!("cannot create the directory {}", blocked.display()));
        assert_eq!(fs::read_to_string(&blocked).unwrap(), "a file");
    }
}
