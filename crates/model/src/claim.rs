//! Identity of resource claims. Source: Kubernetes, `resource.k8s.io/v1` `ResourceClaim`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};
use utoipa::ToSchema;

use crate::id::{ParseError, is_label_name};

/// Name of Octavo's DRA driver: in `ResourceSlices`, in the results of claims and at the kubelet.
pub const DRIVER: &str = "gpu.octavo.dev";

/// UID of a resource claim: at most 63 lowercase letters, digits and `-`, so that it is valid in a file name and in a
/// CDI device name.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr,
)]
pub struct ClaimUid(String);

/// Namespace and name of a resource claim.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[schema(as = ResourceClaim)]
pub struct ClaimRef {
    /// Namespace, which is that of its pods.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// A resource claim. A claim that is created again under the same name has another UID.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimKey {
    /// UID.
    pub uid: ClaimUid,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ClaimUid {
    /// The UID as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ClaimKey {
    /// The namespace and name.
    pub fn reference(&self) -> ClaimRef {
        ClaimRef { namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

impl fmt::Display for ClaimRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl FromStr for ClaimUid {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if is_label_name(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ParseError::new(text, "the UID of a resource claim"))
        }
    }
}

impl fmt::Display for ClaimUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i12_uid_that_is_no_file_name_is_rejected() {
        for text in ["", "../../etc/passwd", "a/b", "A", "a b", &"a".repeat(64)] {
            assert!(text.parse::<ClaimUid>().is_err(), "{text:?}");
        }
        let uid = "3f1c9a52-7d0b-4a6e-9c7f-0d3b8e5a1c24";
        assert_eq!(uid.parse::<ClaimUid>().unwrap().as_str(), uid);
    }
}
