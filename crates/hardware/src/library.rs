//! Search paths of `libnvidia-ml.so.1`. Pure except for checks whether a file exists.
//!
//! The kernel driver and the library must be of the same build, so the search covers the directories where drivers are
//! installed: the host's own, a driver container's, GKE's. `LD_LIBRARY_PATH` is deliberately not searched, because any
//! process in a container can set it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use octavo_toolkit::files::{self, ReadError};

use crate::error::LoadError;

/// The library's file name.
pub const LIBRARY_NAME: &str = "libnvidia-ml.so.1";

/// Library directories below a root, in order of precedence.
const DIRECTORIES: [&str; 6] = [
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "lib64",
    "lib",
];

/// Returns all candidate paths below `roots`, in order of precedence.
pub fn candidates(roots: &[PathBuf]) -> impl Iterator<Item = PathBuf> {
    roots.iter().flat_map(|root| {
        DIRECTORIES.iter().map(move |directory| root.join(directory).join(LIBRARY_NAME))
    })
}

/// Returns the files to try. If `chosen` is set, it is the only one. Otherwise the dynamic loader's own search, which
/// uses the system's cache, comes last.
pub(crate) fn find(chosen: Option<&Path>, roots: &[PathBuf]) -> Result<Vec<PathBuf>, LoadError> {
    if let Some(path) = chosen {
        return if path.exists() { Ok(vec![path.to_owned()]) } else { Err(not_found(path)) };
    }
    let there = candidates(roots).filter(|path| path.exists());
    Ok(there.chain([PathBuf::from(LIBRARY_NAME)]).collect())
}

fn not_found(path: &Path) -> LoadError {
    let words = |part: Option<&Path>| {
        part.filter(|part| !part.as_os_str().is_empty())
            .unwrap_or_else(|| Path::new("."))
            .display()
            .to_string()
    };
    LoadError::NotFound {
        name: words(path.file_name().map(Path::new)),
        searched: words(path.parent()),
    }
}

/// Returns the searched directories for a message.
pub(crate) fn describe_search_path(roots: &[PathBuf]) -> String {
    let mut places: Vec<String> = roots.iter().map(|root| root.display().to_string()).collect();
    places.push("the default search path".to_owned());
    places.join(", ")
}

// Checks that a file is a complete ELF library before it is loaded.
//
// The loader maps the segments that the headers announce, and the kernel kills a process that touches a page beyond
// the end of the file. A driver container that is still copying its files leaves such a library behind. Opening a FIFO
// or device at its path would block forever. Source of the offsets: ELF-64 object file format, version 1.5.

const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
/// 64-bit, little-endian: every machine that an NVIDIA driver runs on.
const MAGIC: [u8; 6] = [0x7f, b'E', b'L', b'F', 2, 1];

/// Returns why the file cannot be a loadable library, or `None` if it can.
pub fn incomplete_reason(path: &Path) -> io::Result<Option<String>> {
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

    #[test]
    fn each_root_is_searched_in_the_order_given() {
        let roots = [PathBuf::from("/"), PathBuf::from("/run/nvidia/driver")];
        let all: Vec<PathBuf> = candidates(&roots).collect();
        assert_eq!(all.len(), 12);
        assert_eq!(all.first().unwrap(), Path::new("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"));
        assert_eq!(all.last().unwrap(), Path::new("/run/nvidia/driver/lib/libnvidia-ml.so.1"));
    }

    #[test]
    fn existing_files_are_tried_before_the_dynamic_loader() {
        let root = tempfile::tempdir().unwrap();
        let there = root.path().join("usr/lib64/libnvidia-ml.so.1");
        std::fs::create_dir_all(there.parent().unwrap()).unwrap();
        std::fs::write(&there, "").unwrap();
        let found = find(None, &[root.path().to_owned()]).unwrap();
        assert_eq!(found, [there, PathBuf::from(LIBRARY_NAME)]);
    }

    #[test]
    fn configured_library_is_the_only_candidate() {
        let error = find(Some(Path::new("/nowhere/libfoo.so")), &[PathBuf::from("/")]).unwrap_err();
        assert_eq!(error.to_string(), "no NVML library libfoo.so (looked in /nowhere)");
    }

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
