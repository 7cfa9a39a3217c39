//! Outcome of validating or creating a profile, as text.

use axum::http::StatusCode;

use super::{Asked, Reader};
use crate::aggregator::access::refused;
use crate::aggregator::creation::{NotMade, Order};
use crate::aggregator::pages::address::encoded;
use crate::aggregator::pages::plan::capital;
use crate::aggregator::pages::words::printable;
use crate::aggregator::rest::OFF;
use crate::domain::error::chain;
use crate::domain::hardware_profile::Draft;
use crate::k8s::hardware_profiles::{Applied, DryRun, Existing, Outcome, Trouble, WriteError, key};
use crate::wire::hardware_profiles::object;

/// Outcome as shown on the page.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) icon: &'static str,
    pub(super) title: &'static str,
    pub(super) text: String,
    /// Differences from the existing profile.
    pub(super) differences: String,
    /// Page of the profile that exists now.
    pub(super) href: Option<String>,
}

/// Validates or creates the profile, as requested.
pub(super) async fn of(asked: &Asked, draft: &Draft, reader: &Reader) -> Answer {
    let dry = match asked.doing.as_str() {
        "create" => DryRun::No,
        // An unknown action is treated as a dry run.
        _ => DryRun::Server,
    };
    let Some(maker) = &reader.maker else {
        return refusal(
            StatusCode::FORBIDDEN,
            &format!("Nothing is made here: {OFF}"),
        );
    };
    let reason = match asked.order().reason() {
        Ok(reason) => reason,
        Err(error) => return refusal(StatusCode::BAD_REQUEST, &error.problem),
    };
    let order = Order {
        object: object(&draft.profile),
        reason,
        existing: if asked.replace {
            Existing::Replace
        } else {
            Existing::Keep
        },
        dry,
    };
    match maker.make(&reader.who, order).await {
        Ok(made) => done(&made, dry),
        Err(why) => not_made(&why, dry),
    }
}

fn done(made: &Applied, dry: DryRun) -> Answer {
    let key = key(&made.object);
    let name = printable(&key.to_string());
    let (title, text) = match (dry, made.outcome) {
        (_, Outcome::Unchanged) => (
            "It is there already",
            format!("{name} is just like this: nothing was written."),
        ),
        (DryRun::Server, Outcome::Created) => (
            "It could be made",
            format!("The API server has nothing against {name}. Nothing was made yet."),
        ),
        (DryRun::Server, Outcome::Replaced) => (
            "It could be replaced",
            format!("The API server has nothing against the new {name}. Nothing was changed yet."),
        ),
        (DryRun::No, Outcome::Created) => (
            "It is made",
            format!("{name} is in the cluster: people can pick it now."),
        ),
        (DryRun::No, Outcome::Replaced) => (
            "It is replaced",
            format!("{name} is in the cluster as it stands here."),
        ),
    };
    let is_there = dry == DryRun::No || made.outcome == Outcome::Unchanged;
    Answer {
        status: StatusCode::OK,
        icon: "ok",
        title,
        text,
        differences: made.differences.join("\n"),
        href: is_there.then(|| {
            let (namespace, name) = (encoded(&key.namespace), encoded(&key.name));
            format!("/profiles/{namespace}/{name}")
        }),
    }
}

fn refusal(status: StatusCode, why: &str) -> Answer {
    Answer {
        status,
        icon: "bad",
        title: "Nothing was made",
        text: format!("{}.", capital(&printable(why))),
        differences: String::new(),
        href: None,
    }
}

fn not_made(why: &NotMade, dry: DryRun) -> Answer {
    let status = match why {
        NotMade::NoNamespace => StatusCode::BAD_REQUEST,
        NotMade::Elsewhere(_) => StatusCode::FORBIDDEN,
        NotMade::Refused(refused) => match refused.kind() {
            refused::Kind::Unchecked => StatusCode::SERVICE_UNAVAILABLE,
            refused::Kind::Unauthenticated => StatusCode::UNAUTHORIZED,
            refused::Kind::BadProxy
            | refused::Kind::Forbidden
            | refused::Kind::Crossing
            | refused::Kind::Host
            | refused::Kind::NotFound
            | refused::Kind::Method => StatusCode::FORBIDDEN,
        },
        NotMade::Busy => StatusCode::SERVICE_UNAVAILABLE,
        NotMade::Ended => StatusCode::INTERNAL_SERVER_ERROR,
        NotMade::Write(error) => match error.trouble() {
            Trouble::Taken => StatusCode::CONFLICT,
            Trouble::Refused => StatusCode::UNPROCESSABLE_ENTITY,
            Trouble::Away => StatusCode::SERVICE_UNAVAILABLE,
        },
    };
    let NotMade::Write(WriteError::Taken {
        key,
        by,
        ours,
        differences,
    }) = why
    else {
        let refusal = refusal(status, &chain(why));
        return if why.is_unknown(dry) {
            Answer {
                title: "It is not known whether it was made",
                ..refusal
            }
        } else {
            refusal
        };
    };
    let then = if *ours {
        "have it put in the place of that one, or give it another name"
    } else {
        "that one is left alone: give this one another name"
    };
    Answer {
        differences: differences.join("\n"),
        ..refusal(
            status,
            &format!("there is a profile {key} already, made by {by}; {then}"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::hardware_profile::ProfileKey;

    #[test]
    fn nothing_was_made_is_said_only_where_that_is_known() {
        let title = |why: &NotMade, dry| not_made(why, dry).title;
        let late = NotMade::Write(WriteError::Late(ProfileKey::default()));
        for unknown in [&late, &NotMade::Ended] {
            assert_eq!(
                title(unknown, DryRun::No),
                "It is not known whether it was made"
            );
            assert_eq!(title(unknown, DryRun::Server), "Nothing was made");
        }
        for known in [NotMade::Busy, NotMade::Write(WriteError::NoKind)] {
            assert_eq!(title(&known, DryRun::No), "Nothing was made");
        }
    }
}
