//! Resource claims as users of devices: the record of prepared claims in the state directory, and the usage of a node with
//! claims.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use octavo_dra::claims::PreparedClaims;
use octavo_kubelet::device_plugin::AllocationBlock;
use octavo_model::holder::Holder;
use octavo_model::id::PciAddress;
use octavo_model::inventory::Device;
use octavo_toolkit::error::chain;
use octavo_toolkit::files::{self, ReadError};

use super::durable::{DurableError, failed};
use super::usage::UsageProbe;

/// The record in the state directory.
pub const FILE_NAME: &str = "claims.json";
/// A copy of the record, for a disk that damages or loses one file.
pub const COPY_FILE_NAME: &str = "claims.copy";
/// Maximum size of the record; a claim has less than a kilobyte.
const MAX_RECORD_BYTES: u64 = 1 << 20;

/// Reads a record; `None` if there is none.
pub fn read(path: &Path) -> Result<Option<PreparedClaims>, DurableError> {
    let text = match files::text(path, MAX_RECORD_BYTES) {
        Ok(text) => Ok(text),
        Err(ReadError::Missing(_)) => return Ok(None),
        Err(error) => Err(io::Error::from(error)),
    };
    let record = text.and_then(|text| {
        let record = serde_json::from_str(&text);
        record.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    });
    record.map(Some).map_err(failed("read", path))
}

/// Source of the prepared claims of this node.
pub trait ClaimRecord: fmt::Debug + Send + Sync {
    /// Returns the current record. An error means that the claims are unknown, which counts as in use.
    fn current(&self) -> Result<PreparedClaims, String>;
}

/// The claims that an agent which is not running recorded in a state directory. The record is never changed.
#[derive(Debug)]
pub struct RecordedClaims(PathBuf);

impl RecordedClaims {
    /// Reads the record in `state_dir` each time.
    pub fn new(state_dir: &Path) -> Self {
        Self(state_dir.to_owned())
    }
}

impl ClaimRecord for RecordedClaims {
    fn current(&self) -> Result<PreparedClaims, String> {
        let file = read(&self.0.join(FILE_NAME));
        if let Ok(Some(record)) = file {
            return Ok(record);
        }
        match (read(&self.0.join(COPY_FILE_NAME)), file) {
            (Ok(Some(record)), _) => Ok(record),
            (Err(error), _) | (_, Err(error)) => Err(chain(&error)),
            (Ok(None), Ok(_)) => Ok(PreparedClaims::default()),
        }
    }
}

/// Usage on a node with claims: a prepared claim uses its devices.
#[derive(Debug)]
pub struct ClaimProbe {
    inner: Arc<dyn UsageProbe>,
    claims: Arc<dyn ClaimRecord>,
}

impl ClaimProbe {
    /// Combines the holders reported by `inner` with `claims`.
    pub fn new(inner: Arc<dyn UsageProbe>, claims: Arc<dyn ClaimRecord>) -> Self {
        Self { inner, claims }
    }
}

impl UsageProbe for ClaimProbe {
    fn holders(&self, devices: &[Device]) -> Result<Vec<Holder>, String> {
        let record = self.claims.current()?;
        let mut all = self.inner.holders(devices)?;
        all.retain(|holder| {
            let monitors = |claim| record.only_monitors(claim, |one| one.pci == holder.device);
            !holder.details.claim.as_ref().is_some_and(monitors)
        });
        // A claim is listed without its pods only if the kubelet lists none of them yet.
        let claims = record.holders(devices).into_iter();
        let unlisted = claims.filter(|claim| !all.iter().any(|pod| pod.has_same_claim(claim)));
        let unlisted: Vec<Holder> = unlisted.collect();
        all.extend(unlisted);
        all.sort();
        Ok(all)
    }

    fn describe(&self, holders: &mut [Holder]) {
        self.inner.describe(holders);
    }

    fn block_allocation(&self, devices: &[PciAddress]) -> Option<AllocationBlock> {
        self.inner.block_allocation(devices)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const ONE: &str = r#"{"claims": {"uid-1": {"namespace": "team", "name": "train", "state": "prepared", "devices": []}}}"#;

    #[test]
    fn i1_unreadable_record_without_a_copy_is_unknown_and_not_changed() {
        let dir = tempfile::tempdir().unwrap();
        let claims = RecordedClaims::new(dir.path());
        assert_eq!(claims.current(), Ok(PreparedClaims::default()));
        let [file, copy] = [FILE_NAME, COPY_FILE_NAME].map(|name| dir.path().join(name));
        fs::write(&file, "{").unwrap();
        let error = claims.current().unwrap_err();
        assert!(error.contains("claims.json"), "{error}");
        fs::write(&copy, ONE).unwrap();
        assert_eq!(claims.current().unwrap().claims.len(), 1);
        fs::write(&copy, "{").unwrap();
        fs::remove_file(&file).unwrap();
        let error = claims.current().unwrap_err();
        assert!(error.contains("claims.copy"), "{error}");
        fs::write(&file, ONE).unwrap();
        assert_eq!(claims.current().unwrap().claims.len(), 1);
        assert_eq!(fs::read_to_string(&copy).unwrap(), "{");
    }
}
