//! The archive in the format tar.gz.

use std::io;

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use tar::{Builder, Header};

/// An archive of files in one directory. Only its compressed form is in memory.
pub(crate) struct Archive {
    builder: Builder<GzEncoder<Vec<u8>>>,
    directory: String,
    time: u64,
}

impl Archive {
    /// Creates an archive without files.
    pub(crate) fn new(directory: &str) -> Self {
        Self {
            builder: Builder::new(GzEncoder::new(Vec::new(), Compression::default())),
            directory: directory.to_owned(),
            time: u64::try_from(Timestamp::now().as_second()).unwrap_or_default(),
        }
    }

    /// Adds a file.
    pub(crate) fn add(&mut self, path: &str, text: &str) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_size(u64::try_from(text.len()).unwrap_or(u64::MAX));
        header.set_mode(0o600);
        header.set_mtime(self.time);
        let path = format!("{}/{path}", self.directory);
        self.builder.append_data(&mut header, path, text.as_bytes())
    }

    /// Returns the compressed archive.
    pub(crate) fn finish(self) -> io::Result<Vec<u8>> {
        self.builder.into_inner()?.finish()
    }
}
