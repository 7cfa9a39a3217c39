//! Where labels go: the port, and the simplest of its implementations.
//!
//! The agent's loop calls [`LabelSink::publish`] after every look at the hardware and does not ask whether anything
//! changed; a sink knows what it published and writes only what differs. That is what makes an idle node cause no write
//! at all, whatever the sink.

use std::future::Future;
use std::io::{self, Write};
use std::path::PathBuf;
use std::pin::Pin;

use jiff::Timestamp;
use thiserror::Error;

use crate::apply::durable::DurableError;
use crate::domain::inventory::Inventory;
use crate::domain::labels::LabelSet;

/// What a sink is still doing when it has been asked to publish.
pub type Publishing<'a> = Pin<Box<dyn Future<Output = Result<Published, SinkError>> + Send + 'a>>;

/// A place that carries a node's labels to the scheduler.
pub trait LabelSink: Send {
    /// Makes the labels of `sheet` the published set, as far as its claim says, writing only when something differs from what is there.
    ///
    /// A failure leaves what was published before, and is to be tried again with the next call.
    fn publish<'a>(&'a mut self, sheet: Sheet<'a>) -> Publishing<'a>;
}

/// What is published.
#[derive(Debug, Clone, Copy)]
pub struct Sheet<'a> {
    /// The labels.
    pub labels: &'a LabelSet,
    /// What they were made of.
    pub inventory: &'a Inventory,
    /// What stands behind them.
    pub claim: Claim,
    /// When it is.
    pub now: Timestamp,
}

/// What stands behind labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// The hardware was read: they replace what is there.
    Read,
    /// The driver hangs and has not been read since this agent started, or a device is unknown whose name a label of the Node
    /// may give, which was not seen yet. What an earlier agent published is better, so they are published only where nothing is.
    Unread,
}

/// What publishing came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// Everything was already there.
    Unchanged,
    /// The labels differed, and were written.
    Changed,
    /// The labels were there; only their time of expiry was moved.
    Refreshed,
}

/// Why labels could not be published. What was published before is still there.
#[derive(Debug, Error)]
pub enum SinkError {
    /// Standard output does not take them.
    #[error("cannot write labels to standard output")]
    Stdout(#[source] io::Error),
    /// The file cannot be written.
    #[error("cannot {action} {path}")]
    File {
        /// What was tried.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A folder, a pipe or a device is where the file should be.
    #[error("{} is there and is no regular file", .0.display())]
    NotAFile(PathBuf),
    /// Another agent keeps the file; two that write in turn would make labels flap.
    #[error("{} is kept by another agent, which holds {}", path.display(), lock.display())]
    KeptByAnother {
        /// The file.
        path: PathBuf,
        /// The lock.
        lock: PathBuf,
    },
    /// The cluster does not take them.
    #[error("the cluster does not have the labels yet: {0}")]
    Cluster(String),
    /// The reader of the file would refuse it.
    #[error("{path} would be {bytes} bytes; NFD reads feature files of at most {limit}")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// How long it would be.
        bytes: usize,
        /// How long it may be.
        limit: usize,
    },
}

impl From<DurableError> for SinkError {
    fn from(error: DurableError) -> Self {
        Self::File {
            action: error.action,
            path: error.path,
            source: error.source,
        }
    }
}

impl SinkError {
    /// Whether the reader is gone for good (`octavo-agent | head -1`).
    pub fn has_no_reader(&self) -> bool {
        matches!(self, Self::Stdout(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Prints the whole set whenever it changes, one `key=value` a line, with an empty line after it.
#[derive(Debug)]
pub struct Stdout<W> {
    writer: W,
    printed: Option<LabelSet>,
}

impl<W: Write + Send> Stdout<W> {
    /// Prints to `writer`.
    pub fn new(writer: W) -> Self {
        Self {
            writer,
            printed: None,
        }
    }

    fn print(&mut self, labels: &LabelSet, claim: Claim) -> Result<Published, SinkError> {
        let kept = claim == Claim::Unread && self.printed.is_some();
        if kept || self.printed.as_ref() == Some(labels) {
            return Ok(Published::Unchanged);
        }
        // One write for the whole set, so that a reader seldom finds a part of it.
        let text = format!("{labels}\n");
        self.writer
            .write_all(text.as_bytes())
            .and_then(|()| self.writer.flush())
            .map_err(SinkError::Stdout)?;
        self.printed = Some(labels.clone());
        Ok(Published::Changed)
    }
}

impl<W: Write + Send> LabelSink for Stdout<W> {
    fn publish<'a>(&'a mut self, sheet: Sheet<'a>) -> Publishing<'a> {
        Box::pin(async move { self.print(sheet.labels, sheet.claim) })
    }
}
