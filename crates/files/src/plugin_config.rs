//! The configuration that we write for NVIDIA's device plugin, `version: v1`. Equal sharing produces equal bytes, and
//! the key identifies the content.
//!
//! Parsing accepts only what we would have written, byte for byte. A configuration sent through the aggregator can
//! therefore contain nothing that [`PluginConfig`] cannot represent. Source: NVIDIA k8s-device-plugin v0.20.0,
//! `api/config/v1`.

use std::fmt::Write as _;

use octavo_fleet::digest::sha256_prefix;
use octavo_model::resource::ResourceName;
use octavo_node::sharing::hand_off::{PluginConfig, ReplicatedResource};
use serde::Deserialize;
use thiserror::Error;

/// Prefix of our keys.
pub const KEY_PREFIX: &str = "octavo-";
/// Maximum size of a configuration, in bytes: about sixty resources.
pub const MAX_CONFIG_BYTES: usize = 4096;
/// Maximum length of a label value. Source: Kubernetes.
const MAX_KEY_CHARS: usize = 63;
/// Bytes of the digest in a key, each written as two digits.
const DIGEST_BYTES: usize = 4;

/// Why a key and its configuration are rejected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PluginConfigError {
    /// The key does not have our format.
    #[error("a key must have the form octavo-LAYOUT-DIGEST and at most 63 characters")]
    InvalidKey,
    /// The configuration is too long.
    #[error("a configuration can have at most {MAX_CONFIG_BYTES} bytes, but this one has {0}")]
    TooLong(usize),
    /// The configuration cannot be parsed.
    #[error("the configuration cannot be read: {0}")]
    Malformed(String),
    /// The configuration contains more than sharing, or is formatted differently.
    #[error("the configuration is not in the form that an agent writes")]
    NotCanonical,
    /// The digest in the key is that of another configuration.
    #[error("the key does not belong to this configuration")]
    DigestMismatch,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    #[expect(dead_code, reason = "the whole text is compared with the written text")]
    version: String,
    flags: Flags,
    sharing: Sharing,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Flags {
    mig_strategy: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Sharing {
    time_slicing: TimeSlicing,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TimeSlicing {
    rename_by_default: bool,
    fail_requests_greater_than_one: bool,
    resources: Vec<Resource>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Resource {
    name: String,
    replicas: u32,
}

/// Writes the configuration.
pub fn text(config: &PluginConfig) -> String {
    let mut text = format!(
        "version: v1\nflags:\n  migStrategy: {}\nsharing:\n  timeSlicing:\n    renameByDefault: {}\n    \
         failRequestsGreaterThanOne: {}\n    resources:\n",
        config.mig_strategy, config.rename_by_default, config.fail_requests_greater_than_one,
    );
    for ReplicatedResource { name, replicas } in &config.resources {
        // Writing to a `String` cannot fail.
        let _written = writeln!(text, "    - name: {name}\n      replicas: {replicas}");
    }
    text
}

/// Returns the key of a configuration that the layout requires. The key is also a valid label value.
pub fn key(layout: &str, text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    let room = MAX_KEY_CHARS.saturating_sub(KEY_PREFIX.len() + 1 + 2 * DIGEST_BYTES);
    let safe = layout.chars().map(|c| if is_plain(c) { c } else { '-' });
    let safe: String = safe.take(room).collect();
    format!("{KEY_PREFIX}{safe}-{}", sha256_prefix(text, DIGEST_BYTES))
}

/// Parses a configuration that an agent may have written.
pub fn read(key: &str, text: &str) -> Result<PluginConfig, PluginConfigError> {
    let name = key.strip_prefix(KEY_PREFIX).ok_or(PluginConfigError::InvalidKey)?;
    let (layout, digest) = name.rsplit_once('-').ok_or(PluginConfigError::InvalidKey)?;
    if text.len() > MAX_CONFIG_BYTES {
        return Err(PluginConfigError::TooLong(text.len()));
    }
    let document: Document = serde_saphyr::from_str(text)
        .map_err(|error| PluginConfigError::Malformed(first_line(&error)))?;
    let config = config(document).ok_or(PluginConfigError::NotCanonical)?;
    if self::text(&config) != text {
        return Err(PluginConfigError::NotCanonical);
    }
    if sha256_prefix(text, DIGEST_BYTES) != digest {
        return Err(PluginConfigError::DigestMismatch);
    }
    if self::key(layout, text) != key {
        return Err(PluginConfigError::InvalidKey);
    }
    Ok(config)
}

fn config(document: Document) -> Option<PluginConfig> {
    let sharing = document.sharing.time_slicing;
    let mut resources = Vec::new();
    for Resource { name, replicas } in sharing.resources {
        let name: ResourceName = name.parse().ok()?;
        resources.push(ReplicatedResource { name, replicas });
    }
    let mig_strategy = document.flags.mig_strategy.parse().ok()?;
    let is_ordered = resources.is_sorted_by(|one, other| one.name < other.name);
    let is_shared = resources.iter().all(|one| one.replicas >= 2);
    (is_ordered && is_shared && !resources.is_empty()).then_some(PluginConfig {
        mig_strategy,
        rename_by_default: sharing.rename_by_default,
        fail_requests_greater_than_one: sharing.fail_requests_greater_than_one,
        resources,
    })
}

/// Shortens error messages about input from a peer.
fn first_line(error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use octavo_node::mig_strategy::MigStrategy;

    use super::*;

    fn config() -> PluginConfig {
        let replicated =
            |name: &str, replicas| ReplicatedResource { name: name.parse().unwrap(), replicas };
        PluginConfig {
            mig_strategy: MigStrategy::Mixed,
            rename_by_default: true,
            fail_requests_greater_than_one: false,
            resources: vec![
                replicated("nvidia.com/gpu", 4),
                replicated("nvidia.com/mig-1g.10gb.me", 2),
            ],
        }
    }

    #[test]
    fn written_config_matches_nvidia_format_and_round_trips() {
        let written = text(&config());
        let expected = "\
version: v1
flags:
  migStrategy: mixed
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: false
    resources:
    - name: nvidia.com/gpu
      replicas: 4
    - name: nvidia.com/mig-1g.10gb.me
      replicas: 2
";
        assert_eq!(written, expected);
        let key = key("notebooks", &written);
        assert_eq!(read(&key, &written), Ok(config()));
    }

    #[test]
    fn key_is_valid_as_label_value_and_config_map_key() {
        let text = text(&config());
        for layout in ["notebooks", "", "a b/c:d", "ümlaut", &"x".repeat(300), "-.-"] {
            let key = key(layout, &text);
            assert!(key.len() <= MAX_KEY_CHARS, "{key}");
            assert!(key.starts_with("octavo-"), "{key}");
            assert!(key.ends_with(|c: char| c.is_ascii_hexdigit()), "{key}");
            let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
            assert!(key.chars().all(plain), "{key}");
            assert_eq!(read(&key, &text), Ok(config()), "{key}");
        }
        let other = text.replace("replicas: 4", "replicas: 3");
        assert_ne!(key("notebooks", &text), key("notebooks", &other));
    }

    #[test]
    fn i12_non_canonical_config_is_rejected() {
        let good = text(&config());
        let swapped = good.replace("replicas: 4", "replicas: 1");
        let mps = good.replace("timeSlicing", "mps");
        let flag = good
            .replace("migStrategy: mixed", "migStrategy: mixed\n  plugin: {passDeviceSpecs: true}");
        let quoted = good.replace("version: v1", "version: 'v1'");
        let comment = format!("{good}# hello\n");
        let twice = format!("{good}    - name: nvidia.com/gpu\n      replicas: 4\n");
        let foreign = good.replace("nvidia.com/gpu", "example.com/gpu");
        let nothing = text(&PluginConfig { resources: Vec::new(), ..config() });
        let long = format!("{good}{}", "#".repeat(MAX_CONFIG_BYTES));
        let bomb = "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n".to_owned();
        for wrong in [
            swapped,
            mps,
            flag,
            quoted,
            comment,
            twice,
            foreign,
            nothing,
            long,
            bomb,
            String::new(),
            "version: v1\n".to_owned(),
            "\u{0}".to_owned(),
        ] {
            let key = key("a", &wrong);
            assert!(read(&key, &wrong).is_err(), "{wrong}");
        }
        let of_another = key("a", "something else");
        assert_eq!(read(&of_another, &good), Err(PluginConfigError::DigestMismatch));
        for wrong in ["default", "octavo-", "octavo-a", "../octavo-a-12345678", ""] {
            assert!(read(wrong, &good).is_err(), "{wrong}");
        }
        let spaced = key("a", &good).replace("octavo-a", "octavo-a b");
        assert_eq!(read(&spaced, &good), Err(PluginConfigError::InvalidKey));
    }
}
