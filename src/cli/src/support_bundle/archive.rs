//! The archive in the format tar.gz.

use std::io;

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use tar::{Builder, Header};

/// Compresses the files, which are paths with texts, in a directory `name`.
pub(super) fn compress(files: &[(String, String)], name: &str) -> io::Result<Vec<u8>> {
    let mut builder = Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    let now = u64::try_from(Timestamp::now().as_second()).unwrap_or_default();
    for (path, text) in files {
        let mut header = Header::new_gnu();
        header.set_size(u64::try_from(text.len()).unwrap_or(u64::MAX));
        header.set_mode(0o600);
        header.set_mtime(now);
        builder.append_data(&mut header, format!("{name}/{path}"), text.as_bytes())?;
    }
    builder.into_inner()?.finish()
}
