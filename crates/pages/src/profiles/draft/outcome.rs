//! Outcome of validating or creating a profile, as text.

use axum::http::StatusCode;
use octavo_access::access::error;
use octavo_access::creation::{CREATION_DISABLED, CreateError, CreateRequest};
use octavo_documents::hardware_profiles::object;
use octavo_fleet::hardware_profile::Draft;
use octavo_kube::hardware_profiles::{
    Applied, DryRun, ErrorCategory, Existing, Outcome, WriteError, key,
};
use octavo_toolkit::error::chain;

use super::{DraftForm, PageReader};
use crate::address::encoded;
use crate::format::printable;
use crate::plan::capitalize;

/// Outcome as shown on the page.
#[derive(Debug)]
pub(super) struct CreationOutcome {
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
pub(super) async fn run_action(
    asked: &DraftForm,
    draft: &Draft,
    reader: &PageReader,
) -> CreationOutcome {
    let dry = match asked.action.as_str() {
        "create" => DryRun::No,
        // An unknown action is treated as a dry run.
        _ => DryRun::Server,
    };
    let Some(maker) = &reader.maker else {
        return refusal(
            StatusCode::FORBIDDEN,
            &format!("Nothing is made here: {CREATION_DISABLED}"),
        );
    };
    let reason = match asked.to_request().reason() {
        Ok(reason) => reason,
        Err(error) => return refusal(StatusCode::BAD_REQUEST, &error.problem),
    };
    let order = CreateRequest {
        object: object(&draft.profile),
        reason,
        existing: if asked.replace {
            Existing::Replace
        } else {
            Existing::Keep
        },
        dry_run: dry,
    };
    match maker.create(&reader.who, order).await {
        Ok(made) => success(&made, dry),
        Err(why) => failure(&why, dry),
    }
}

fn success(made: &Applied, dry: DryRun) -> CreationOutcome {
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
    CreationOutcome {
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

fn refusal(status: StatusCode, why: &str) -> CreationOutcome {
    CreationOutcome {
        status,
        icon: "bad",
        title: "Nothing was made",
        text: format!("{}.", capitalize(&printable(why))),
        differences: String::new(),
        href: None,
    }
}

fn failure(why: &CreateError, dry: DryRun) -> CreationOutcome {
    let status = match why {
        CreateError::NoNamespace => StatusCode::BAD_REQUEST,
        CreateError::NotLocal(_) => StatusCode::FORBIDDEN,
        CreateError::Unauthorized(refused) => match refused.kind() {
            error::AccessErrorKind::ReviewUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            error::AccessErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
            error::AccessErrorKind::UntrustedProxy
            | error::AccessErrorKind::Forbidden
            | error::AccessErrorKind::CrossSite
            | error::AccessErrorKind::Host
            | error::AccessErrorKind::NotFound
            | error::AccessErrorKind::Method => StatusCode::FORBIDDEN,
        },
        CreateError::Busy => StatusCode::SERVICE_UNAVAILABLE,
        CreateError::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
        CreateError::Write(error) => match error.trouble() {
            ErrorCategory::Conflict => StatusCode::CONFLICT,
            ErrorCategory::Rejected => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorCategory::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        },
    };
    let CreateError::Write(WriteError::Taken {
        key,
        by,
        ours,
        differences,
    }) = why
    else {
        let refusal = refusal(status, &chain(why));
        return if why.may_have_succeeded(dry) {
            CreationOutcome {
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
    CreationOutcome {
        differences: differences.join("\n"),
        ..refusal(
            status,
            &format!("there is a profile {key} already, made by {by}; {then}"),
        )
    }
}

#[cfg(test)]
mod tests {
    use octavo_fleet::hardware_profile::ProfileKey;

    use super::*;

    #[test]
    fn unknown_outcome_is_not_reported_as_failure() {
        let title = |why: &CreateError, dry| failure(why, dry).title;
        let late = CreateError::Write(WriteError::TimedOut(ProfileKey::default()));
        for unknown in [&late, &CreateError::Panicked] {
            assert_eq!(
                title(unknown, DryRun::No),
                "It is not known whether it was made"
            );
            assert_eq!(title(unknown, DryRun::Server), "Nothing was made");
        }
        for known in [CreateError::Busy, CreateError::Write(WriteError::NoKind)] {
            assert_eq!(title(&known, DryRun::No), "Nothing was made");
        }
    }
}
