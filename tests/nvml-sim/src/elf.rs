//! Creates a copy of a shared library in which some functions cannot be found, to simulate an older driver.
//!
//! The names of exported symbols are in the dynamic string table. Changing the first letter of one leaves everything
//! else in place: `dlsym` still finds the entry by its hash, compares the name, and fails. The code of the function
//! stays, so a library that calls its own export by name would no longer load; this one does not.
//!
//! Only 64-bit little-endian ELF, which covers every machine with these GPUs.

use thiserror::Error;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;

/// First character of a hidden name instead of `n`.
const HIDDEN: u8 = b'-';

/// Why a library cannot be patched.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ElfError {
    /// Not a 64-bit little-endian ELF file, or one without dynamic symbols.
    #[error("it is not a 64-bit ELF library: {0}")]
    NotALibrary(&'static str),
    /// The library has no symbol of that name, so hiding it would test nothing.
    #[error("it has no symbol {0}")]
    NoSymbol(String),
}

/// Hides symbols in the bytes of a library.
pub fn hide(library: &mut [u8], names: &[&str]) -> Result<(), ElfError> {
    let table = string_table(library)?;
    for name in names {
        let needle: Vec<u8> = [&[0], name.as_bytes(), &[0]].concat();
        let strings = library
            .get(table.clone())
            .ok_or(ElfError::NotALibrary("its strings exceed the file"))?;
        let found = strings.windows(needle.len()).position(|window| window == needle);
        let at = found.ok_or_else(|| ElfError::NoSymbol((*name).to_owned()))?;
        let first = table.start.saturating_add(at).saturating_add(1);
        if let Some(byte) = library.get_mut(first) {
            *byte = HIDDEN;
        }
    }
    Ok(())
}

/// Range of the dynamic string table in the file.
fn string_table(library: &[u8]) -> Result<std::ops::Range<usize>, ElfError> {
    let bad = ElfError::NotALibrary;
    if library.get(..6) != Some(&[0x7f, b'E', b'L', b'F', 2, 1]) {
        return Err(bad("wrong magic"));
    }
    let headers = ProgramHeaders::read(library).ok_or_else(|| bad("no program headers"))?;
    let dynamic = headers
        .segments
        .iter()
        .find(|segment| segment.kind == PT_DYNAMIC)
        .ok_or_else(|| bad("no dynamic section"))?;
    let entry = |tag: u64| {
        (0..dynamic.size / 16).find_map(|nth| {
            let at = dynamic.offset.checked_add(nth.checked_mul(16)?)?;
            let found = word(library, at)? == tag;
            found.then(|| word(library, at.checked_add(8)?)).flatten()
        })
    };
    let address = entry(DT_STRTAB).ok_or_else(|| bad("no string table"))?;
    let size = entry(DT_STRSZ).ok_or_else(|| bad("no string table size"))?;
    let offset = headers.offset_of(address).ok_or_else(|| bad("its string table is not loaded"))?;
    let start = usize::try_from(offset).map_err(|_| bad("too large"))?;
    let size = usize::try_from(size).map_err(|_| bad("too large"))?;
    Ok(start..start.saturating_add(size))
}

struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    size: u64,
}

struct ProgramHeaders {
    segments: Vec<Segment>,
}

impl ProgramHeaders {
    fn read(library: &[u8]) -> Option<Self> {
        let table = word(library, 0x20)?;
        let entry_size = u64::from(half(library, 0x36)?);
        let count = u64::from(half(library, 0x38)?);
        let segment = |nth: u64| {
            let at = table.checked_add(nth.checked_mul(entry_size)?)?;
            let kind = bytes::<4>(library, at)?;
            Some(Segment {
                kind: u32::from_le_bytes(kind),
                offset: word(library, at.checked_add(8)?)?,
                address: word(library, at.checked_add(16)?)?,
                size: word(library, at.checked_add(32)?)?,
            })
        };
        let segments: Option<Vec<Segment>> = (0..count).map(segment).collect();
        Some(Self { segments: segments? })
    }

    fn offset_of(&self, address: u64) -> Option<u64> {
        self.segments.iter().filter(|segment| segment.kind == PT_LOAD).find_map(|segment| {
            let inside = address.checked_sub(segment.address)?;
            (inside < segment.size).then(|| segment.offset.checked_add(inside))?
        })
    }
}

fn word(library: &[u8], at: u64) -> Option<u64> {
    bytes(library, at).map(u64::from_le_bytes)
}

fn half(library: &[u8], at: u64) -> Option<u16> {
    bytes(library, at).map(u16::from_le_bytes)
}

fn bytes<const N: usize>(library: &[u8], at: u64) -> Option<[u8; N]> {
    let at = usize::try_from(at).ok()?;
    library.get(at..at.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A library with only a dynamic segment and these names.
    fn library(names: &[&str]) -> Vec<u8> {
        let mut strings = vec![0];
        for name in names {
            strings.extend(name.as_bytes());
            strings.push(0);
        }
        let mut file = vec![0; 0x40];
        file[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
        file[0x20..0x28].copy_from_slice(&0x40_u64.to_le_bytes());
        file[0x36..0x38].copy_from_slice(&56_u16.to_le_bytes());
        file[0x38..0x3a].copy_from_slice(&2_u16.to_le_bytes());
        let (dynamic, text) = (0x40 + 2 * 56_u64, 0x40 + 2 * 56 + 32_u64);
        let mut header = |kind: u32, offset: u64, address: u64, size: u64| {
            file.extend(kind.to_le_bytes());
            file.extend([0; 4]);
            for word in [offset, address, address, size, size, 8] {
                file.extend(word.to_le_bytes());
            }
        };
        header(PT_LOAD, 0, 0x1000, 0x1000);
        header(PT_DYNAMIC, dynamic, 0x1000 + dynamic, 32);
        let size = u64::try_from(strings.len()).unwrap();
        for word in [DT_STRTAB, 0x1000 + text, DT_STRSZ, size] {
            file.extend(word.to_le_bytes());
        }
        file.extend(strings);
        file
    }

    #[test]
    fn hidden_symbol_changes_one_byte_and_longer_symbols_stay() {
        let names = ["nvmlInit_v2", "nvmlInit", "nvmlInitWithFlags"];
        let mut patched = library(&names);
        hide(&mut patched, &["nvmlInit"]).unwrap();
        assert_eq!(patched, library(&["nvmlInit_v2", "-vmlInit", "nvmlInitWithFlags"]));
    }

    #[test]
    fn missing_symbol_is_an_error() {
        let mut file = library(&["nvmlInit"]);
        let error = hide(&mut file, &["nvmlFoo"]).unwrap_err();
        assert_eq!(error, ElfError::NoSymbol("nvmlFoo".to_owned()));
    }

    #[test]
    fn file_that_is_not_a_library_is_rejected_at_any_length() {
        let whole = library(&["nvmlInit"]);
        for length in 0..whole.len() - 1 {
            let mut cut = whole[..length].to_vec();
            assert!(hide(&mut cut, &["nvmlInit"]).is_err(), "{length} bytes");
        }
        assert!(hide(&mut b"#!/bin/sh\n".to_vec(), &["nvmlInit"]).is_err());
    }
}
