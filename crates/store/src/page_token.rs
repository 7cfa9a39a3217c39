//! Text of continuation tokens: base64url of JSON, which needs no escaping in a URL. It is opaque to clients.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Encodes the position of a page.
pub(crate) fn encode(token: &impl Serialize) -> String {
    // A struct of numbers and texts can always be serialized.
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(token).unwrap_or_default())
}

/// Decodes a position; `None` if `text` does not contain one.
pub(crate) fn decode<T: DeserializeOwned>(text: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
}
