//! Layouts of exact MIG instances: a controller chooses the instances of one node, and writes them to an annotation of the
//! Node. The name of such a layout contains a digest of the annotation, so that a changed annotation is detected.

use octavo_model::digest::Digest;
use octavo_model::text::group_thousands;
use thiserror::Error;

use super::{INSTANCES_ANNOTATION, LAYOUT_LABEL};

/// Prefix of the names of these layouts. It is reserved: a name with this prefix in the label `octavo.dev/layout` never
/// selects a layout of the layouts file.
pub const DEMAND_PREFIX: &str = "demand-";
/// Maximum size of the annotation `octavo.dev/instances`, in bytes. The API server permits 256 KiB for all annotations of
/// an object.
pub const MAX_INSTANCES_BYTES: usize = 128 * 1024;
/// Hexadecimal digits of the digest in a name.
const DIGITS: usize = 10;

/// Reason for rejecting the annotation `octavo.dev/instances` of a Node.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InstancesRejected {
    /// The Node has no annotation.
    #[error(
        "layout {layout} needs the annotation {INSTANCES_ANNOTATION}, which the Node does not have: remove the label \
         {LAYOUT_LABEL} or choose another layout"
    )]
    Missing {
        /// Name of the layout.
        layout: String,
    },
    /// The annotation is too large.
    #[error(
        "the annotation {INSTANCES_ANNOTATION} of layout {layout} has {} bytes, more than the maximum of {}: remove the \
         label {LAYOUT_LABEL} or choose another layout",
        group_thousands(&.bytes.to_string()), group_thousands(&MAX_INSTANCES_BYTES.to_string())
    )]
    TooLarge {
        /// Name of the layout.
        layout: String,
        /// Size of the annotation, in bytes.
        bytes: usize,
    },
    /// The annotation is not the one that the layout was named for.
    #[error(
        "the annotation {INSTANCES_ANNOTATION} does not belong to layout {layout}, because its digest is that of {actual}: \
         restore the annotation, remove the label {LAYOUT_LABEL} or choose another layout"
    )]
    Differs {
        /// Name of the layout.
        layout: String,
        /// Name of the layout with the instances of the annotation.
        actual: String,
    },
}

/// Returns the name of the layout with the instances of `text`, a checkpoint: the prefix and 10 hexadecimal digits.
pub fn demand_layout(text: &str) -> String {
    let digest = format!("{:016x}", Digest::from_bytes(text.as_bytes()));
    let digits = digest.chars().take(DIGITS);
    DEMAND_PREFIX.chars().chain(digits).collect()
}

/// Returns whether the name of a layout has the reserved prefix.
pub fn is_demand_layout(layout: &str) -> bool {
    layout.starts_with(DEMAND_PREFIX)
}

/// Returns the annotation's text if it belongs to `layout`.
///
/// # Errors
/// Returns an error if the annotation is missing, too large, or not the one that the layout was named for.
pub fn check_instances<'text>(
    layout: &str,
    text: Option<&'text str>,
) -> Result<&'text str, InstancesRejected> {
    let layout = || layout.to_owned();
    let text = text.ok_or_else(|| InstancesRejected::Missing { layout: layout() })?;
    if text.len() > MAX_INSTANCES_BYTES {
        return Err(InstancesRejected::TooLarge { layout: layout(), bytes: text.len() });
    }
    let actual = demand_layout(text);
    if actual != layout() {
        return Err(InstancesRejected::Differs { layout: layout(), actual });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_the_prefix_with_the_first_digits_of_the_digest() {
        // FNV-1a, 64 bits: the offset basis is cbf29ce484222325, and the hash of `a` is af63dc4c8601ec8c.
        assert_eq!(demand_layout(""), "demand-cbf29ce484");
        assert_eq!(demand_layout("a"), "demand-af63dc4c86");
        assert!(is_demand_layout(&demand_layout("a")));
        for other in ["", "demand", "on-demand-a", "Demand-af63dc4c86"] {
            assert!(!is_demand_layout(other), "{other}");
        }
    }

    #[test]
    fn i12_only_the_annotation_that_belongs_to_the_layout_is_accepted() {
        let layout = demand_layout("a");
        assert_eq!(check_instances(&layout, Some("a")), Ok("a"));
        let missing = InstancesRejected::Missing { layout: layout.clone() };
        assert_eq!(check_instances(&layout, None), Err(missing));
        let differs = |layout: &str| InstancesRejected::Differs {
            layout: layout.to_owned(),
            actual: demand_layout("a "),
        };
        assert_eq!(check_instances(&layout, Some("a ")), Err(differs(&layout)));
        for incomplete in ["demand-", "demand-af63dc4c8", "demand-af63dc4c860"] {
            assert_eq!(check_instances(incomplete, Some("a ")), Err(differs(incomplete)));
            assert!(check_instances(incomplete, Some("a")).is_err(), "{incomplete}");
        }
    }

    #[test]
    fn i10_size_of_the_annotation_is_bounded() {
        let largest = "x".repeat(MAX_INSTANCES_BYTES);
        assert!(check_instances(&demand_layout(&largest), Some(&largest)).is_ok());
        let larger = format!("{largest}x");
        let error = check_instances(&demand_layout(&larger), Some(&larger)).unwrap_err();
        assert!(error.to_string().contains("has 131,073 bytes, more than the maximum of 131,072"));
    }
}
