//! Whether a request that may change something was made by a page of another site, in the name of who looks at that page.
//!
//! A browser says where a request comes from, and no page can make it say otherwise; a program says nothing of the kind, and has no
//! browser's credentials that somebody could misuse. Sources: Fetch Metadata Request Headers (W3C), RFC 6454.

use thiserror::Error;

/// What a request says of where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Whence<'a> {
    /// `Sec-Fetch-Site`.
    pub site: Option<&'a str>,
    /// `Origin`.
    pub origin: Option<&'a str>,
    /// Whom it is for, as the browser knows it: `Host`.
    pub host: Option<&'a str>,
}

/// It was made by a page of another site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a page of another site made this request; only pages of this server may")]
pub struct Crossing;

/// Whether a request with a method other than GET, HEAD and OPTIONS may be looked at.
pub fn judge(from: Whence<'_>) -> Result<(), Crossing> {
    // Both are asked where both are there: what one browser leaves out the other one says.
    let by_site = from
        .site
        .is_none_or(|site| matches!(site, "same-origin" | "none"));
    let by_origin = from.origin.is_none_or(|origin| {
        let authority = origin
            .strip_prefix("https://")
            .or_else(|| origin.strip_prefix("http://"));
        authority.is_some_and(|authority| {
            from.host
                .is_some_and(|host| authority.eq_ignore_ascii_case(host))
        })
    });
    if by_site && by_origin {
        Ok(())
    } else {
        Err(Crossing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_page_of_this_server_and_a_program_may_change_something() {
        let host = Some("octavo.example:8443");
        let ours = Some("https://octavo.example:8443");
        let rows = [
            (None, None, true),
            (Some("same-origin"), ours, true),
            (Some("same-origin"), None, true),
            (Some("none"), None, true),
            (None, ours, true),
            (None, Some("https://OCTAVO.example:8443"), true),
            (Some("cross-site"), None, false),
            (Some("cross-site"), ours, false),
            (Some("same-site"), None, false),
            (Some("unheard-of"), None, false),
            (Some("same-origin"), Some("https://evil.example"), false),
            (None, Some("https://evil.example"), false),
            (None, Some("https://octavo.example"), false),
            (
                None,
                Some("https://octavo.example:8443.evil.example"),
                false,
            ),
            (None, Some("null"), false),
            (None, Some(""), false),
        ];
        for (site, origin, fine) in rows {
            let from = Whence { site, origin, host };
            assert_eq!(judge(from).is_ok(), fine, "{from:?}");
        }
        let nowhere = Whence {
            origin: ours,
            ..Whence::default()
        };
        assert_eq!(judge(nowhere), Err(Crossing));
    }
}
