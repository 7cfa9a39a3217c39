//! Outcome of validating or creating a profile, as text.

use axum::http::StatusCode;
use octavo_access::creation::{CREATION_DISABLED, CreateError, CreateRequest};
use octavo_access::guard::error;
use octavo_fleet::hardware_profile::Draft;
use octavo_fleet::hardware_profile::object::object;
use octavo_kube::hardware_profiles::{
    Applied, DryRun, ErrorCategory, Existing, Outcome, WriteError, key,
};
use octavo_toolkit::error::chain;

use super::{DraftForm, PageReader};
use crate::address::profile_path;
use crate::badges::{capitalize, printable};

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
    form: &DraftForm,
    draft: &Draft,
    reader: &PageReader,
) -> CreationOutcome {
    let dry = match form.action.as_str() {
        "create" => DryRun::No,
        // An unknown action is treated as a dry run.
        _ => DryRun::Server,
    };
    let Some(creator) = &reader.creator else {
        return refusal(
            StatusCode::FORBIDDEN,
            &format!("the aggregator does not create profiles: {CREATION_DISABLED}"),
        );
    };
    let reason = match form.to_request().reason() {
        Ok(reason) => reason,
        Err(error) => return refusal(StatusCode::BAD_REQUEST, &error.problem),
    };
    let order = CreateRequest {
        object: object(&draft.profile),
        reason,
        existing: if form.replace { Existing::Replace } else { Existing::Keep },
        dry_run: dry,
    };
    match creator.create(&reader.who, order).await {
        Ok(made) => success(&made, dry),
        Err(why) => failure(&why, dry),
    }
}

fn success(made: &Applied, dry: DryRun) -> CreationOutcome {
    let key = key(&made.object);
    let name = printable(&key.to_string());
    let (title, text) = match (dry, made.outcome) {
        (_, Outcome::Unchanged) => {
            ("No changes", format!("{name} exists and is identical. Nothing was written."))
        }
        (DryRun::Server, Outcome::Created) => (
            "Dry run succeeded",
            format!("The API server would create {name}. Nothing was created yet."),
        ),
        (DryRun::Server, Outcome::Replaced) => (
            "Dry run succeeded",
            format!("The API server would replace {name}. Nothing was changed yet."),
        ),
        (DryRun::No, Outcome::Created) => {
            ("Profile created", format!("{name} was created. Users can select it now."))
        }
        (DryRun::No, Outcome::Replaced) => {
            ("Profile replaced", format!("{name} was replaced with this version."))
        }
    };
    let is_there = dry == DryRun::No || made.outcome == Outcome::Unchanged;
    CreationOutcome {
        status: StatusCode::OK,
        icon: "ok",
        title,
        text,
        differences: made.differences.join("\n"),
        href: is_there.then(|| profile_path(&key.namespace, &key.name)),
    }
}

fn refusal(status: StatusCode, why: &str) -> CreationOutcome {
    CreationOutcome {
        status,
        icon: "bad",
        title: "Profile not created",
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
        CreateError::Write(error) => match error.category() {
            ErrorCategory::Conflict => StatusCode::CONFLICT,
            ErrorCategory::Rejected => StatusCode::UNPROCESSABLE_ENTITY,
            ErrorCategory::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        },
    };
    let CreateError::Write(WriteError::Taken { key, by, ours, differences }) = why else {
        let refusal = refusal(status, &chain(why));
        return if why.may_have_succeeded(dry) {
            CreationOutcome {
                title: "Unknown outcome: the profile may have been created",
                ..refusal
            }
        } else {
            refusal
        };
    };
    let then = if *ours {
        "replace it, or choose another name"
    } else {
        "it is not replaced; choose another name"
    };
    CreationOutcome {
        differences: differences.join("\n"),
        ..refusal(status, &format!("profile {key} already exists, created by {by}; {then}"))
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
                "Unknown outcome: the profile may have been created"
            );
            assert_eq!(title(unknown, DryRun::Server), "Profile not created");
        }
        for known in [CreateError::Busy, CreateError::Write(WriteError::NoKind)] {
            assert_eq!(title(&known, DryRun::No), "Profile not created");
        }
    }
}
