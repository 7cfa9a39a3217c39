//! Form of a new hardware profile, created from nodes selected in the list: the prefilled fields, notes, the object,
//! its differences from an existing profile of the same name, and the commands that create it. If the aggregator
//! creates profiles and the reader is authorized, buttons validate and create it.
//!
//! The selection is sent in the body, because an address has no room for the names of a thousand nodes. An address may
//! still name nodes, so that a page with a few of them can be shared.

mod draft_form;
mod fields;
mod outcome;

use askama::Template;
use axum::http::{StatusCode, Uri};
use octavo_access::creation::{ProfileCreator, Requester};
use octavo_files::hardware_profiles::yaml;
use octavo_fleet::access::Visibility;
use octavo_fleet::hardware_profile::object::{differences, object};
use octavo_fleet::hardware_profile::{
    CountError, CountField, Draft, DraftError, HardwareProfile, Identifier, NO_TAINT, Scheduling,
};
use octavo_kube::hardware_profiles::Existing;
use octavo_store::profiles::ProfileDraftError;
use octavo_toolkit::error::chain;

use self::draft_form::DraftForm;
use self::fields::{CountFields, TaintCheckbox};
use self::outcome::CreationOutcome;
use super::{Frame, PageState};
use crate::badges::{capitalize, count_noun, printable};

/// Maximum number of node names in a sentence.
const MAX_NAMES: usize = 12;

#[derive(Template)]
#[template(path = "draft.html")]
pub(super) struct DraftPage {
    frame: Frame,
    form: DraftForm,
    selected: String,
    /// Outcome of the creation.
    answer: Option<CreationOutcome>,
    /// Why there is no draft.
    refused: Option<DraftRefusal>,
    counts: Vec<CountFields>,
    taints: Vec<TaintCheckbox>,
    made: Option<DraftView>,
    origin: String,
    /// Method of the form, the same as that of the page's request.
    method: &'static str,
}

impl DraftPage {
    /// Value of a field that is always sent, to distinguish an empty choice of taints from no choice.
    const NO_TAINT: &str = NO_TAINT;
}

/// Reader of the page: identity, visibility, base URL, and the creator of profiles if enabled.
pub(super) struct PageReader {
    pub(super) who: Requester,
    pub(super) visibility: Visibility,
    pub(super) creator: Option<ProfileCreator>,
    pub(super) origin: String,
}

/// Shown if the resources of the nodes are not known.
const WATCH_HINT: &str = "Profiles are created from the nodes of the cluster. The aggregator reads them if the Helm value \
    aggregator.followCluster is true, or if it is started with --follow-cluster.";

/// Why there is no draft, and possible corrections.
#[derive(Debug)]
struct DraftRefusal {
    why: String,
    /// What to configure, if the aggregator cannot create drafts.
    hint: Option<&'static str>,
    choices: Vec<Correction>,
    /// Resource and bound of an invalid count.
    counts: Option<(String, CountField)>,
}

/// Suggested correction: a field of the form with a value.
#[derive(Debug)]
struct Correction {
    name: &'static str,
    value: String,
    word: String,
}

/// The drafted profile.
#[derive(Debug)]
struct DraftView {
    summary: String,
    counts: Vec<Identifier>,
    selector: Vec<String>,
    tolerates: Vec<String>,
    notes: Vec<String>,
    yaml: String,
    there: Option<ExistingProfile>,
    offer: CreationOffer,
    create: String,
    apply: String,
}

/// Existing profile of the same name.
#[derive(Debug)]
struct ExistingProfile {
    /// Whether it claims to have been created by Octavo; only the cluster knows for certain.
    is_ours: bool,
    by: Option<String>,
    /// Differences; `None` if the reader is not allowed to list profiles.
    differences: Option<String>,
}

/// Whether the reader can create the profile here.
#[derive(Debug)]
enum CreationOffer {
    /// Profile creation is disabled.
    Disabled,
    /// The reader is not authorized, for this reason.
    Unauthorized(String),
    /// The reader is authorized.
    Available,
}

/// Draft without the counts and taints of the form, and with them.
struct Drafts {
    plain: Option<Draft>,
    draft: Result<Draft, (StatusCode, DraftRefusal)>,
}

/// Serves the form that an address describes.
pub(super) async fn page(
    site: &PageState,
    uri: &Uri,
    reader: PageReader,
) -> (StatusCode, DraftPage) {
    let form = DraftForm::parse_address(uri);
    let (status, page) = render(site, form, &reader, None).await;
    let method = "get";
    (status, DraftPage { method, ..page })
}

/// Handles a submitted form: validates or creates the profile if requested, and shows the form with the outcome.
pub(super) async fn submit(
    site: &PageState,
    pairs: Vec<(String, String)>,
    reader: PageReader,
) -> (StatusCode, DraftPage) {
    let form = DraftForm::parse_pairs(pairs);
    let answer = match &form {
        Ok(form) if form.action.is_empty() => None,
        Ok(form) => match create_drafts(site, form).await.draft {
            Ok(draft) => Some(outcome::run_action(form, &draft, &reader).await),
            Err(_shown_beside_the_form) => None,
        },
        Err(_shown_beside_the_form) => None,
    };
    render(site, form, &reader, answer).await
}

async fn render(
    site: &PageState,
    form: Result<DraftForm, String>,
    reader: &PageReader,
    answer: Option<CreationOutcome>,
) -> (StatusCode, DraftPage) {
    let (mut form, drafted) = match form {
        Ok(form) => {
            let drafted = create_drafts(site, &form).await;
            (form, drafted)
        }
        Err(why) => (
            DraftForm::default(),
            Drafts {
                plain: None,
                draft: Err((StatusCode::BAD_REQUEST, DraftRefusal::plain(&why))),
            },
        ),
    };
    let Drafts { plain, draft } = drafted;
    let wrong = match &draft {
        Err((_, refused)) => refused.counts.clone(),
        Ok(_) => None,
    };
    let (mut counts, mut taints) = (Vec::new(), Vec::new());
    if let Some(plain) = &plain {
        let all = plain.profile.identifiers.iter();
        counts = all.map(|one| CountFields::of(one, &form, wrong.as_ref())).collect();
        taints = TaintCheckbox::all(plain, &form);
        form.prefill(plain);
    }
    let (status, refused, made) = match draft {
        Ok(draft) => {
            let made = DraftView::of(&draft, &form, (site, reader)).await;
            (StatusCode::OK, None, Some(made))
        }
        Err((status, refused)) => (status, Some(refused), None),
    };
    let page = DraftPage {
        frame: Frame::new(&site.view),
        selected: selection_summary(&form),
        form,
        refused,
        counts,
        taints,
        made,
        origin: reader.origin.clone(),
        method: "post",
        answer,
    };
    let answered = page.answer.as_ref().map(|answer| answer.status);
    (answered.unwrap_or(status), page)
}

async fn create_drafts(site: &PageState, form: &DraftForm) -> Drafts {
    let request = match form.request() {
        Ok(request) => request,
        Err(why) => {
            return Drafts {
                plain: None,
                draft: Err((StatusCode::BAD_REQUEST, DraftRefusal::plain(&why))),
            };
        }
    };
    let mut plain = request.clone();
    plain.counts = Vec::new();
    plain.tolerate = None;
    let profiles = site.view.profiles();
    let plain = profiles.draft(site.view.fleet(), plain).await;
    let draft = match &plain {
        Ok(_) => profiles.draft(site.view.fleet(), request).await,
        Err(why) => Err(why.clone()),
    };
    Drafts {
        plain: plain.ok(),
        draft: draft.map_err(|why| match why {
            ProfileDraftError::NoCluster(why) => (
                StatusCode::SERVICE_UNAVAILABLE,
                DraftRefusal {
                    hint: Some(WATCH_HINT),
                    ..DraftRefusal::plain(&format!(
                        "The resources of the nodes are not known: {why}."
                    ))
                },
            ),
            ProfileDraftError::Refused(why) => {
                (StatusCode::UNPROCESSABLE_ENTITY, DraftRefusal::of(&why))
            }
        }),
    }
}

impl DraftRefusal {
    fn plain(why: &str) -> Self {
        Self { why: printable(why), hint: None, choices: Vec::new(), counts: None }
    }

    fn of(why: &DraftError) -> Self {
        let (name, values): (_, Vec<String>) = match why {
            DraftError::SeveralTypes(types) => {
                ("type", types.iter().map(ToString::to_string).collect())
            }
            DraftError::AmbiguousResource(all) => ("resource", all.clone()),
            DraftError::NoUsableNode(_)
            | DraftError::NoNodeOfType(_)
            | DraftError::NoSuchResource(_)
            | DraftError::Counts(_)
            | DraftError::NoSuchTaint { .. } => ("", Vec::new()),
        };
        let choice = |value: String| Correction { name, word: printable(&value), value };
        let choices = values.into_iter().map(choice).collect();
        if let DraftError::Counts(CountError { resource, part, .. }) = why {
            return Self {
                counts: Some((resource.clone(), *part)),
                // The message begins with a resource name, which is not capitalized.
                ..Self::plain(&format!("{why}."))
            };
        }
        Self { choices, ..Self::plain(&format!("{}.", capitalize(&why.to_string()))) }
    }
}

impl DraftView {
    async fn of(
        draft: &Draft,
        form: &DraftForm,
        (site, reader): (&PageState, &PageReader),
    ) -> Self {
        let profile = &draft.profile;
        let (selector, tolerates) = match &profile.scheduling {
            Scheduling::Node { selector, tolerations } => (
                selector.iter().map(|(key, value)| format!("{key}={value}")).collect(),
                tolerations.iter().map(|one| printable(&one.key)).collect(),
            ),
            Scheduling::Anywhere | Scheduling::Queue { .. } => (Vec::new(), Vec::new()),
        };
        Self {
            summary: format!(
                "Based on {}: {}.",
                count_noun(draft.nodes.len(), "node", "nodes"),
                join_names(&draft.nodes)
            ),
            counts: profile.identifiers.clone(),
            selector,
            tolerates,
            notes: { draft.notes.iter() }.map(|note| printable(&note.to_string())).collect(),
            yaml: yaml(&object(profile)),
            there: ExistingProfile::of(site, draft, &reader.visibility),
            offer: CreationOffer::of(reader, draft).await,
            create: form.octavo_command(&reader.origin),
            apply: form.curl_command(&reader.origin),
        }
    }
}

impl ExistingProfile {
    /// Finds an existing profile of the draft's name and shows what the reader is allowed to see.
    fn of(site: &PageState, draft: &Draft, visibility: &Visibility) -> Option<Self> {
        let there = site.view.profiles().known(&draft.profile.key)?;
        Some(Self::compare(&there, &draft.profile, visibility))
    }

    fn compare(there: &HardwareProfile, new: &HardwareProfile, visibility: &Visibility) -> Self {
        let by = there.annotations.by.as_deref().map(printable);
        let differs = || differences(&object(there), &object(new)).join("\n");
        Self {
            is_ours: by.is_some(),
            by: by.filter(|_| visibility.profiles),
            differences: visibility.profiles.then(differs),
        }
    }
}

impl CreationOffer {
    fn is_here(&self) -> bool {
        matches!(self, Self::Available)
    }

    async fn of(reader: &PageReader, draft: &Draft) -> Self {
        let Some(creator) = &reader.creator else {
            return Self::Disabled;
        };
        let key = &draft.profile.key;
        match creator.authorize(&reader.who, key, Existing::Keep).await {
            Ok(()) => Self::Available,
            Err(why) => Self::Unauthorized(printable(&format!("{}.", capitalize(&chain(&why))))),
        }
    }
}

fn selection_summary(form: &DraftForm) -> String {
    let all: Vec<String> = form.nodes.iter().cloned().collect();
    match all.as_slice() {
        [] => String::new(),
        all => format!("{} selected: {}", count_noun(all.len(), "node", "nodes"), join_names(all)),
    }
}

/// Lists the first names and the number of the others.
fn join_names(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(MAX_NAMES).map(|name| printable(name)).collect();
    match names.len().saturating_sub(MAX_NAMES) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_selection_is_truncated() {
        let form = DraftForm {
            nodes: (10..40).map(|at| format!("node-{at}")).collect(),
            ..DraftForm::default()
        };
        let text = selection_summary(&form);
        assert!(text.starts_with("30 nodes selected: node-10, node-11, "), "{text}");
        assert!(text.ends_with("node-21 and 18 more"), "{text}");
    }

    #[test]
    fn existing_profile_requires_permission_to_list_profiles() {
        let mut there = HardwareProfile::default();
        there.annotations.by = Some("ada".to_owned());
        let new = HardwareProfile {
            display_name: Some("secret".to_owned()),
            ..HardwareProfile::default()
        };
        let notes_with = |profiles| {
            let visibility = Visibility { profiles, ..Visibility::everything() };
            ExistingProfile::compare(&there, &new, &visibility)
        };
        let (seen, unseen) = (notes_with(true), notes_with(false));
        assert_eq!(seen.by.as_deref(), Some("ada"));
        assert!(seen.differences.is_some_and(|all| all.contains("secret")));
        assert_eq!((unseen.by, unseen.differences), (None, None));
        assert!(seen.is_ours && unseen.is_ours);
    }
}
