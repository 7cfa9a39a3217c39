//! Parts of a status: the units that are sent, compared and hashed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use octavo_model::digest::Digest;
use octavo_model::id::PciAddress;
use thiserror::Error;

/// A status: parts by key. Cheap to clone, and small, because an aggregator holds one for each node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parts(
    /// Ordered by key, each key once.
    Arc<[(PartKey, Content)]>,
);

/// Key of a part, such as `node` or `device/0000:07:00.0`. Unknown keys of a newer peer are stored like any other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartKey(Arc<str>);

/// The serialized bytes of a part with their digest. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    bytes: Arc<[u8]>,
    digest: Digest,
}

/// The difference between two statuses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// Parts that are new or have different content.
    pub changed: Vec<(PartKey, Content)>,
    /// Parts that were removed.
    pub removed: Vec<PartKey>,
}

/// A text that is not a valid part key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not a part key: 1 to {MAX_KEY_BYTES} printable ASCII characters")]
pub struct PartKeyError(String);

/// Maximum length of a key, longer than every key in use. Keys are stored for each node, so they must be bounded.
const MAX_KEY_BYTES: usize = 64;

impl PartKey {
    /// Text of [`PartKey::node`].
    pub const NODE: &'static str = "node";
    /// Text of [`PartKey::labels`].
    pub const LABELS: &'static str = "labels";
    /// Text of [`PartKey::layout`].
    pub const LAYOUT: &'static str = "layout";
    /// Text of [`PartKey::sharing`].
    pub const SHARING: &'static str = "sharing";
    /// Text of [`PartKey::usage`].
    pub const USAGE: &'static str = "usage";
    /// Text of [`PartKey::past_usage`].
    pub const PAST_USAGE: &'static str = "past-usage";
    /// Text of [`PartKey::neuron`].
    pub const NEURON: &'static str = "neuron";

    /// Key of the machine and its NVML link.
    pub fn node() -> Self {
        Self(Self::NODE.into())
    }

    /// Key of the node's labels.
    pub fn labels() -> Self {
        Self(Self::LABELS.into())
    }

    /// Key of the layout's status.
    pub fn layout() -> Self {
        Self(Self::LAYOUT.into())
    }

    /// Key of the sharing status.
    pub fn sharing() -> Self {
        Self(Self::SHARING.into())
    }

    /// Key of the usage by pod.
    pub fn usage() -> Self {
        Self(Self::USAGE.into())
    }

    /// Key of the past usage by pod.
    pub fn past_usage() -> Self {
        Self(Self::PAST_USAGE.into())
    }

    /// Key of a device.
    pub fn device(pci: PciAddress) -> Self {
        Self(format!("device/{pci}").into())
    }

    /// Key of the Neuron driver's report about the node.
    pub fn neuron() -> Self {
        Self(Self::NEURON.into())
    }

    /// Key of a Neuron device, by the driver's number for it.
    pub fn neuron_device(number: u32) -> Self {
        Self(format!("neuron/{number}").into())
    }

    /// Key of a profile catalog, by the digest of its content.
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
        if (1..=MAX_KEY_BYTES).contains(&text.len()) && printable {
            Ok(Self(text.into()))
        } else {
            // Truncated, because the sender controls its length.
            Err(PartKeyError(text.chars().take(MAX_KEY_BYTES).collect()))
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
        let digest = Digest::from_bytes(&bytes);
        Self { bytes, digest }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes as a shared reference.
    pub fn shared(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// Their digest.
    pub fn digest(&self) -> Digest {
        self.digest
    }
}

impl Parts {
    /// The content of a part.
    pub fn get(&self, key: &str) -> Option<&Content> {
        let at = self.0.binary_search_by(|(known, _)| known.as_str().cmp(key));
        self.0.get(at.ok()?).map(|(_, content)| content)
    }

    /// All parts, ordered by key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&PartKey, &Content)> {
        self.0.iter().map(|(key, content)| (key, content))
    }

    /// Number of parts.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no parts.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Total size of all contents and keys in bytes.
    pub fn size(&self) -> usize {
        let sizes = self.iter();
        let sizes =
            sizes.map(|(key, content)| key.as_str().len().saturating_add(content.bytes.len()));
        sizes.fold(0, usize::saturating_add)
    }

    /// Hash of the status: 0 if it is empty; otherwise over each key, a zero byte, and the digest of its content in
    /// little-endian order, ordered by key.
    pub fn hash(&self) -> Digest {
        if self.is_empty() {
            return Digest::default();
        }
        self.iter().fold(Digest::START, |hash, (key, content)| {
            hash.with(key.as_str().as_bytes()).with(&[0]).with(&content.digest.get().to_le_bytes())
        })
    }

    /// The change from `self` to `to`.
    pub fn change_to(&self, to: &Self) -> Change {
        let changed = to.iter().filter(|(key, content)| self.get(key.as_str()) != Some(content));
        let keys = self.0.iter().map(|(key, _)| key);
        let removed = keys.filter(|key| to.get(key.as_str()).is_none());
        Change {
            changed: changed.map(|(key, content)| (key.clone(), content.clone())).collect(),
            removed: removed.cloned().collect(),
        }
    }

    /// Applies `change`. Removing a missing part has no effect.
    #[must_use]
    pub fn apply(&self, change: &Change) -> Self {
        if let Some(parts) = self.with_contents(change) {
            return parts;
        }
        let removed: BTreeSet<&PartKey> = change.removed.iter().collect();
        let retained = self.0.iter();
        let retained = retained.filter(|(key, _)| !removed.contains(key));
        retained.chain(&change.changed).cloned().collect()
    }

    /// Applies a change of the contents of existing parts, the usual one, without sorting; `None` for any other change.
    fn with_contents(&self, change: &Change) -> Option<Self> {
        if !change.removed.is_empty() {
            return None;
        }
        let mut parts = Arc::clone(&self.0);
        let places = Arc::make_mut(&mut parts);
        for (key, content) in &change.changed {
            let at = places.binary_search_by(|(known, _)| known.cmp(key)).ok()?;
            places.get_mut(at)?.1 = content.clone();
        }
        Some(Self(parts))
    }
}

/// Uses the last content if a key occurs more than once, as in a delta.
impl FromIterator<(PartKey, Content)> for Parts {
    fn from_iter<I: IntoIterator<Item = (PartKey, Content)>>(parts: I) -> Self {
        let parts: BTreeMap<PartKey, Content> = parts.into_iter().collect();
        Self(parts.into_iter().collect())
    }
}

impl Change {
    /// Returns whether it has no effect.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }
}
