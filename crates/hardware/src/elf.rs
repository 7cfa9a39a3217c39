//! Checks that a file is a complete ELF library before it is loaded.
//!
//! The loader maps the segments that the headers announce, and the kernel kills a process that touches a page beyond
//! the end of the file. A driver container that is still copying its files leaves such a library behind. Opening a FIFO
//! or device at its path would block forever. Source of the offsets: ELF-64 object file format, version 1.5.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use octavo_toolkit::files::{self, ReadError};

const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
/// 64-bit, little-endian: every machine that an NVIDIA driver runs on.
const MAGIC: [u8; 6] = [0x7f, b'E', b'L', b'F', 2, 1];

/// Returns why the file cannot be a loadable library, or `None` if it can.
pub(crate) fn incomplete_reason(path: &Path) -> io::Result<Option<String>> {
    let mut file = match files::open(path) {
        Ok(file) => file,
        Err(error @ ReadError::NotARegularFile) => return Ok(Some(error.to_string())),
        Err(error) => return Err(error.into()),
    };
    let mut header = [0; HEADER_BYTES];
    if file.read_exact(&mut header).is_err() || !header.starts_with(&MAGIC) {
        return Ok(Some("it is not a 64-bit ELF library".to_owned()));
    }
    let promised = announced_length(&mut file, &header);
    let there = file.metadata()?.len();
    Ok((promised > there)
        .then(|| format!("it has {there} of {promised} bytes; it might still be being copied")))
}

/// Returns the length that the headers announce: the end of the last segment or of the section table, which is at the
/// end of the file.
fn announced_length(file: &mut File, header: &[u8; HEADER_BYTES]) -> u64 {
    let sections = number(header, 0x28, 8)
        .saturating_add(number(header, 0x3c, 2).saturating_mul(number(header, 0x3a, 2)));
    let count = number(header, 0x38, 2);
    let table = number(header, 0x20, 8);
    let mut end =
        sections.max(table.saturating_add(count.saturating_mul(PROGRAM_HEADER_BYTES as u64)));
    if file.seek(SeekFrom::Start(table)).is_err() {
        return u64::MAX;
    }
    for _ in 0..count {
        let mut segment = [0; PROGRAM_HEADER_BYTES];
        if file.read_exact(&mut segment).is_err() {
            break;
        }
        let segment_end = number(&segment, 8, 8).saturating_add(number(&segment, 32, 8));
        end = end.max(segment_end);
    }
    end
}

/// Reads the little-endian number of `width` bytes at `offset`.
fn number(bytes: &[u8], offset: usize, width: usize) -> u64 {
    let field = bytes.iter().skip(offset).take(width).rev();
    field.fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objection_to(bytes: &[u8]) -> Option<String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        incomplete_reason(file.path()).unwrap()
    }

    #[test]
    fn truncated_library_is_rejected() {
        let whole = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(objection_to(&whole), None);
        for length in [64, 100, 3000, 200_000, whole.len() / 2, whole.len() - 1] {
            let message = objection_to(&whole[..length]).unwrap_or_default();
            assert!(message.contains("still be being copied"), "{length}: {message:?}");
        }
    }

    #[test]
    fn non_library_is_rejected_with_reason() {
        for bytes in [&b""[..], b"not a library", b"\x7fELF\x01\x01", &[0; 100]] {
            assert_eq!(objection_to(bytes).as_deref(), Some("it is not a 64-bit ELF library"));
        }
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [directory.path(), &pipe] {
            assert_eq!(
                incomplete_reason(path).unwrap().as_deref(),
                Some("it is not a regular file")
            );
        }
    }

    #[test]
    fn invalid_headers_are_rejected() {
        let mut bytes = vec![0xff; 4096];
        bytes[..6].copy_from_slice(&MAGIC);
        assert!(objection_to(&bytes).is_some());
    }
}
