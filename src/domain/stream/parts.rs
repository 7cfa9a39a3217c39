//! A status as parts: what is sent, compared and hashed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

use crate::domain::id::PciAddress;

/// A status: parts by key. Cheap to clone, and small: an aggregator holds one for each node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parts(
    /// Ordered by key, each key once.
    Arc<[(PartKey, Content)]>,
);

/// The name of a part, such as `node` or `device/0000:07:00.0`. Keys of a newer peer are kept like any other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartKey(Arc<str>);

/// The bytes of a part, as its writer made them, with their digest. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    bytes: Arc<[u8]>,
    digest: Digest,
}

/// A hash of bytes: FNV-1a, 64 bits. It finds accidents, not malice: who can forge it may as well send other bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Digest(u64);

/// What leads from one status to another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// Parts that are new or have other content.
    pub changed: Vec<(PartKey, Content)>,
    /// Parts that are no more.
    pub removed: Vec<PartKey>,
}

/// A text that is no part's key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not a part's key: 1 to {LONGEST_KEY} printable ASCII characters")]
pub struct PartKeyError(String);

/// Longer than every key in use; keys are kept for each node, so they must be bounded.
const LONGEST_KEY: usize = 64;

impl PartKey {
    /// Of the machine itself and its link to NVML.
    pub fn node() -> Self {
        Self("node".into())
    }

    /// Of what the node tells the scheduler.
    pub fn labels() -> Self {
        Self("labels".into())
    }

    /// Of where the node stands with regard to its layout.
    pub fn layout() -> Self {
        Self("layout".into())
    }

    /// Of how far what is given out to pods is what shall be.
    pub fn sharing() -> Self {
        Self("sharing".into())
    }

    /// Of who has what.
    pub fn usage() -> Self {
        Self("usage".into())
    }

    /// Of a device.
    pub fn device(pci: PciAddress) -> Self {
        Self(format!("device/{pci}").into())
    }

    /// Of what the Neuron driver says of the node.
    pub fn neuron() -> Self {
        Self("neuron".into())
    }

    /// Of a Neuron device, by the driver's number for it.
    pub fn neuron_device(number: u32) -> Self {
        Self(format!("neuron/{number}").into())
    }

    /// Of what devices offer, by the digest of the content that says it.
    pub fn profiles(digest: Digest) -> Self {
        Self(format!("profiles/{digest:016x}").into())
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PartKey {
    type Err = PartKeyError;

    fn from_str(text: &str) -> Result<Self, PartKeyError> {
        let printable = text.bytes().all(|byte| byte.is_ascii_graphic());
        if (1..=LONGEST_KEY).contains(&text.len()) && printable {
            Ok(Self(text.into()))
        } else {
            // Only its beginning is repeated: it may be as long as its sender liked.
            Err(PartKeyError(text.chars().take(LONGEST_KEY).collect()))
        }
    }
}

impl fmt::Display for PartKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Content {
    /// Content of these bytes.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        let bytes = bytes.into();
        let digest = Digest::of(&bytes);
        Self { bytes, digest }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes, shared.
    pub fn shared(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// Their hash.
    pub fn digest(&self) -> Digest {
        self.digest
    }
}

impl Digest {
    const START: Self = Self(0xcbf2_9ce4_8422_2325);

    /// The hash of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self::START.with(bytes)
    }

    /// From the number that [`Digest::get`] gave.
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// As a number.
    pub fn get(self) -> u64 {
        self.0
    }

    fn with(self, bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(self.0, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        }))
    }
}

impl fmt::LowerHex for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

impl Parts {
    /// The content of a part.
    pub fn get(&self, key: &str) -> Option<&Content> {
        let at = self
            .0
            .binary_search_by(|(known, _)| known.as_str().cmp(key));
        self.0.get(at.ok()?).map(|(_, content)| content)
    }

    /// All parts, ordered by key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&PartKey, &Content)> {
        self.0.iter().map(|(key, content)| (key, content))
    }

    /// How many parts.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of all contents and keys.
    pub fn size(&self) -> usize {
        let sizes = self.iter();
        let sizes =
            sizes.map(|(key, content)| key.as_str().len().saturating_add(content.bytes.len()));
        sizes.fold(0, usize::saturating_add)
    }

    /// The hash of the whole: 0 of nothing, else over each key, a zero byte, and the digest of its content in
    /// little-endian order, ordered by key.
    pub fn hash(&self) -> Digest {
        if self.is_empty() {
            return Digest::default();
        }
        self.iter().fold(Digest::START, |hash, (key, content)| {
            hash.with(key.as_str().as_bytes())
                .with(&[0])
                .with(&content.digest.0.to_le_bytes())
        })
    }

    /// What leads from `self` to `to`.
    pub fn change_to(&self, to: &Self) -> Change {
        let changed = to
            .iter()
            .filter(|(key, content)| self.get(key.as_str()) != Some(content));
        let keys = self.0.iter().map(|(key, _)| key);
        let removed = keys.filter(|key| to.get(key.as_str()).is_none());
        Change {
            changed: changed
                .map(|(key, content)| (key.clone(), content.clone()))
                .collect(),
            removed: removed.cloned().collect(),
        }
    }

    /// With `change` made. Removing what is not there changes nothing.
    #[must_use]
    pub fn with(&self, change: &Change) -> Self {
        let removed: BTreeSet<&PartKey> = change.removed.iter().collect();
        let kept = self.0.iter();
        let kept = kept.filter(|(key, _)| !removed.contains(key));
        kept.chain(&change.changed).cloned().collect()
    }
}

/// Of two contents for one key the last is taken, as in a delta.
impl FromIterator<(PartKey, Content)> for Parts {
    fn from_iter<I: IntoIterator<Item = (PartKey, Content)>>(parts: I) -> Self {
        let parts: BTreeMap<PartKey, Content> = parts.into_iter().collect();
        Self(parts.into_iter().collect())
    }
}

impl Change {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }
}
