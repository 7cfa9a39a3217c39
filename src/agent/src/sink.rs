//! Label sinks: the trait, and the simplest of its implementations.
//!
//! The agent's loop calls [`LabelSink::publish`] after every scan of the hardware and does not check for changes; a
//! sink remembers what it published and writes only differences. An idle node therefore causes no write at all,
//! whatever the sink.

use std::io::{self, Write};
use std::path::PathBuf;

use jiff::Timestamp;
use octavo_engine::durable::DurableError;
use octavo_model::inventory::Inventory;
use octavo_node::label_set::LabelSet;
use thiserror::Error;

/// Destination that carries a node's labels to the scheduler.
#[tonic::async_trait]
pub trait LabelSink: Send {
    /// Publishes labels within the limits of their evidence, writing only if something differs.
    ///
    /// A failure leaves the published labels in place; the next call tries again.
    async fn publish(&mut self, publication: Publication<'_>) -> Result<Published, SinkError>;
}

/// Labels to publish, with their context.
#[derive(Debug, Clone, Copy)]
pub struct Publication<'a> {
    /// The labels.
    pub labels: &'a LabelSet,
    /// The inventory they were computed from.
    pub inventory: &'a Inventory,
    /// The evidence for them.
    pub evidence: Evidence,
    /// Current time.
    pub now: Timestamp,
}

/// Evidence for a set of labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// The hardware was read: the labels replace the published ones.
    Read,
    /// The driver hangs and has not been read since this agent started, or an unrecognized device may be named by a
    /// label of the Node, which was not read yet. Labels of an earlier agent are better, so these are published only
    /// if there are none.
    NotRead,
}

/// Result of publishing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// Everything was already published.
    Unchanged,
    /// The labels differed, and were written.
    Changed,
    /// The labels were already published; only their expiry was extended.
    Refreshed,
}

/// Reason why labels could not be published. Previously published labels remain.
#[derive(Debug, Error)]
pub enum SinkError {
    /// Standard output cannot be written.
    #[error("cannot write labels to standard output")]
    Stdout(#[source] io::Error),
    /// The file cannot be written.
    #[error("cannot {action} {path}")]
    File {
        /// The failed action.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The path is a directory, a pipe or a device.
    #[error("{} exists and is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// Another agent owns the file; two that overwrite each other would make labels flap.
    #[error("{} belongs to another agent, which holds the lock {}", path.display(), lock.display())]
    OwnedByAnother {
        /// The file.
        path: PathBuf,
        /// The lock.
        lock: PathBuf,
    },
    /// The cluster did not accept the labels.
    #[error("labels are not in the cluster yet: {0}")]
    Cluster(String),
    /// The reader of the file would reject it.
    #[error("{path} would have {bytes} bytes; NFD reads feature files of at most {limit} bytes")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: usize,
        /// The maximum size.
        limit: usize,
    },
}

impl From<DurableError> for SinkError {
    fn from(error: DurableError) -> Self {
        Self::File { action: error.action, path: error.path, source: error.source }
    }
}

impl SinkError {
    /// Returns whether the reader is gone permanently (`octavo-agent | head -1`).
    pub fn has_no_reader(&self) -> bool {
        matches!(self, Self::Stdout(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Sink that prints the whole set whenever it changes, one `key=value` per line, followed by an empty line.
#[derive(Debug)]
pub struct StdoutSink<W> {
    writer: W,
    printed: Option<LabelSet>,
}

impl<W: Write + Send> StdoutSink<W> {
    /// Creates a sink that prints to `writer`.
    pub fn new(writer: W) -> Self {
        Self { writer, printed: None }
    }

    fn print(&mut self, labels: &LabelSet, evidence: Evidence) -> Result<Published, SinkError> {
        let is_retained = evidence == Evidence::NotRead && self.printed.is_some();
        if is_retained || self.printed.as_ref() == Some(labels) {
            return Ok(Published::Unchanged);
        }
        // A single write of the whole set, so that a reader seldom sees a part of it.
        let text = format!("{labels}\n");
        self.writer
            .write_all(text.as_bytes())
            .and_then(|()| self.writer.flush())
            .map_err(SinkError::Stdout)?;
        self.printed = Some(labels.clone());
        Ok(Published::Changed)
    }
}

#[tonic::async_trait]
impl<W: Write + Send> LabelSink for StdoutSink<W> {
    async fn publish(&mut self, publication: Publication<'_>) -> Result<Published, SinkError> {
        self.print(publication.labels, publication.evidence)
    }
}
