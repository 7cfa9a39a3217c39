//! Credentials of a request: a bearer token or an identity forwarded by a proxy.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, header};
use octavo_fleet::access::Caller;
use octavo_fleet::credential::Token;

use super::AccessError;
use crate::trusted_proxies::TrustedProxies;

/// Headers in which an authenticating proxy forwards the user and their groups.
const USER: HeaderName = HeaderName::from_static("x-forwarded-user");
const GROUPS: HeaderName = HeaderName::from_static("x-forwarded-groups");

/// Credentials of a request.
#[derive(Debug, Clone)]
pub(super) enum Credentials {
    /// Bearer token, whose owner is not known yet.
    Token(Token),
    /// Caller named by a trusted proxy.
    Caller(Arc<Caller>),
}

/// Reads the credentials from the headers of a request sent by `peer`.
pub(super) fn from_headers(
    headers: &HeaderMap,
    peer: Option<IpAddr>,
    proxies: Option<&TrustedProxies>,
) -> Result<Credentials, AccessError> {
    let forwarded = headers.contains_key(USER) || headers.contains_key(GROUPS);
    match proxies.filter(|_| forwarded) {
        None => bearer(headers).map(Credentials::Token),
        Some(proxies) if peer.is_some_and(|peer| proxies.contains(peer)) => {
            caller(headers, proxies.groups).map(|caller| Credentials::Caller(Arc::new(caller)))
        }
        Some(_) => Err(AccessError::UntrustedProxy),
    }
}

fn caller(headers: &HeaderMap, groups: bool) -> Result<Caller, AccessError> {
    let lines = |name: HeaderName| -> Result<Vec<&str>, AccessError> {
        let all = headers.get_all(name).iter();
        let all = all.map(|value| value.to_str().map_err(|_odd| AccessError::UnreadableIdentity));
        all.collect()
    };
    let user = match lines(USER)?.as_slice() {
        [] => "",
        [user] => user,
        [_, _, ..] => return Err(AccessError::UnreadableIdentity),
    };
    let names = lines(GROUPS)?;
    if !groups && !names.is_empty() {
        return Err(AccessError::UntrustedGroups);
    }
    Ok(Caller::from_forwarded(user, &names)?)
}

/// Returns the single bearer token.
fn bearer(headers: &HeaderMap) -> Result<Token, AccessError> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let value = all.next().ok_or(AccessError::NoToken)?;
    if all.next().is_some() {
        return Err(AccessError::InvalidAuthorization);
    }
    let text = value.to_str().map_err(|_odd| AccessError::InvalidAuthorization)?;
    let (scheme, token) = text.split_once(' ').ok_or(AccessError::InvalidAuthorization)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(AccessError::InvalidAuthorization);
    }
    Ok(Token::parse_opaque(token.trim())?)
}
