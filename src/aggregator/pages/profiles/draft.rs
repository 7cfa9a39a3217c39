//! Form of a new hardware profile, created from nodes selected in the list: the prefilled fields, notes, the object,
//! its differences from an existing profile of the same name, and the commands that create it. If the aggregator
//! creates profiles and the reader is authorized, buttons validate and create it.
//!
//! The selection is sent in the body, because an address has no room for the names of a thousand nodes. An address may
//! still name nodes, so that a page with a few of them can be shared.

mod answer;
mod asked;
mod fields;

use askama::Template;
use axum::http::{StatusCode, Uri};

use self::answer::Answer;
use self::asked::Asked;
use self::fields::{CountFields, TaintBox};
use super::{Assets, Count, Site};
use crate::aggregator::creation::{Maker, Who};
use crate::aggregator::pages::plan::capital;
use crate::aggregator::pages::words::{counted, printable};
use crate::aggregator::profiles::NoDraft;
use crate::domain::access::Sight;
use crate::domain::error::chain;
use crate::domain::hardware_profile::{
    CountError, Draft, HardwareProfile, NO_TAINT, Part, Refusal, Scheduling,
};
use crate::k8s::hardware_profiles::Existing;
use crate::wire::hardware_profiles::document::IdentifierJson;
use crate::wire::hardware_profiles::{differences, object, yaml};

/// Maximum number of node names in a sentence.
const SHOWN: usize = 12;

#[derive(Template)]
#[template(path = "draft.html")]
pub(super) struct DraftPage {
    assets: Assets,
    asked: Asked,
    selected: String,
    /// Outcome of the creation.
    answer: Option<Answer>,
    /// Why there is no draft.
    refused: Option<Refused>,
    counts: Vec<CountFields>,
    taints: Vec<TaintBox>,
    made: Option<Made>,
    origin: String,
    /// Method of the form, the same as that of the page's request.
    method: &'static str,
}

impl DraftPage {
    /// Value of a field that is always sent, to distinguish an empty choice of taints from no choice.
    const NO_TAINT: &str = NO_TAINT;
}

/// Reader of the page: identity, visibility, base URL, and the creator of profiles if enabled.
pub(super) struct Reader {
    pub(super) who: Who,
    pub(super) sight: Sight,
    pub(super) maker: Option<Maker>,
    pub(super) origin: String,
}

/// Why there is no draft, and possible corrections.
#[derive(Debug)]
struct Refused {
    why: String,
    choices: Vec<Choice>,
    /// Resource and bound of an invalid count.
    counts: Option<(String, Part)>,
}

/// Suggested correction: a field of the form with a value.
#[derive(Debug)]
struct Choice {
    name: &'static str,
    value: String,
    word: String,
}

/// The drafted profile.
#[derive(Debug)]
struct Made {
    summary: String,
    counts: Vec<Count>,
    selector: Vec<String>,
    tolerates: Vec<String>,
    notes: Vec<String>,
    yaml: String,
    there: Option<There>,
    offer: Offer,
    create: String,
    apply: String,
}

/// Existing profile of the same name.
#[derive(Debug)]
struct There {
    /// Whether it claims to have been created by Octavo; only the cluster knows for certain.
    is_ours: bool,
    by: Option<String>,
    /// Differences; `None` if the reader is not allowed to list profiles.
    differences: Option<String>,
}

/// Whether the reader can create the profile here.
#[derive(Debug)]
enum Offer {
    /// Profile creation is disabled.
    Off,
    /// The reader is not authorized, for this reason.
    NotFor(String),
    /// The reader is authorized.
    Here,
}

/// Draft without the counts and taints of the form, and with them.
struct Drafted {
    plain: Option<Draft>,
    draft: Result<Draft, (StatusCode, Refused)>,
}

/// Serves the form that an address describes.
pub(super) async fn page(site: &Site, uri: &Uri, reader: Reader) -> (StatusCode, DraftPage) {
    let asked = Asked::of(uri);
    let (status, page) = shown(site, asked, &reader, None).await;
    let method = "get";
    (status, DraftPage { method, ..page })
}

/// Handles a submitted form: validates or creates the profile if requested, and shows the form with the outcome.
pub(super) async fn sent(
    site: &Site,
    pairs: Vec<(String, String)>,
    reader: Reader,
) -> (StatusCode, DraftPage) {
    let asked = Asked::of_pairs(pairs);
    let answer = match &asked {
        Ok(asked) if asked.doing.is_empty() => None,
        Ok(asked) => match drafted(site, asked).await.draft {
            Ok(draft) => Some(answer::of(asked, &draft, &reader).await),
            Err(_told_beside_the_form) => None,
        },
        Err(_told_beside_the_form) => None,
    };
    shown(site, asked, &reader, answer).await
}

async fn shown(
    site: &Site,
    asked: Result<Asked, String>,
    reader: &Reader,
    answer: Option<Answer>,
) -> (StatusCode, DraftPage) {
    let (mut asked, drafted) = match asked {
        Ok(asked) => {
            let drafted = drafted(site, &asked).await;
            (asked, drafted)
        }
        Err(why) => (
            Asked::default(),
            Drafted {
                plain: None,
                draft: Err((StatusCode::BAD_REQUEST, Refused::plain(&why))),
            },
        ),
    };
    let Drafted { plain, draft } = drafted;
    let wrong = match &draft {
        Err((_, refused)) => refused.counts.clone(),
        Ok(_) => None,
    };
    let (mut counts, mut taints) = (Vec::new(), Vec::new());
    if let Some(plain) = &plain {
        let all = plain.profile.identifiers.iter();
        counts = all
            .map(|one| CountFields::of(one, &asked, wrong.as_ref()))
            .collect();
        taints = TaintBox::all(plain, &asked);
        asked.fill(plain);
    }
    let (status, refused, made) = match draft {
        Ok(draft) => {
            let made = Made::of(&draft, &asked, (site, reader)).await;
            (StatusCode::OK, None, Some(made))
        }
        Err((status, refused)) => (status, Some(refused), None),
    };
    let page = DraftPage {
        assets: Assets::links(),
        selected: selected(&asked),
        asked,
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

async fn drafted(site: &Site, asked: &Asked) -> Drafted {
    let wish = match asked.wish() {
        Ok(wish) => wish,
        Err(why) => {
            return Drafted {
                plain: None,
                draft: Err((StatusCode::BAD_REQUEST, Refused::plain(&why))),
            };
        }
    };
    let mut plain = wish.clone();
    plain.counts = Vec::new();
    plain.tolerate = None;
    let profiles = site.view.profiles();
    let plain = profiles.draft(site.view.fleet(), plain).await;
    let draft = match &plain {
        Ok(_) => profiles.draft(site.view.fleet(), wish).await,
        Err(why) => Err(why.clone()),
    };
    Drafted {
        plain: plain.ok(),
        draft: draft.map_err(|why| match why {
            NoDraft::NoCluster(why) => (
                StatusCode::SERVICE_UNAVAILABLE,
                Refused::plain(&format!("What the nodes can give is not known: {why}.")),
            ),
            NoDraft::Refused(why) => (StatusCode::UNPROCESSABLE_ENTITY, Refused::of(&why)),
        }),
    }
}

impl Refused {
    fn plain(why: &str) -> Self {
        Self {
            why: printable(why),
            choices: Vec::new(),
            counts: None,
        }
    }

    fn of(why: &Refusal) -> Self {
        let (name, values): (_, Vec<String>) = match why {
            Refusal::SeveralTypes(types) => {
                ("type", types.iter().map(ToString::to_string).collect())
            }
            Refusal::Resource(all) => ("resource", all.clone()),
            Refusal::NoNode(_)
            | Refusal::NoNodeOfType(_)
            | Refusal::NoSuchResource(_)
            | Refusal::Counts(_)
            | Refusal::NoSuchTaint { .. } => ("", Vec::new()),
        };
        let choice = |value: String| Choice {
            name,
            word: printable(&value),
            value,
        };
        let choices = values.into_iter().map(choice).collect();
        if let Refusal::Counts(CountError { resource, part, .. }) = why {
            return Self {
                counts: Some((resource.clone(), *part)),
                // The message begins with a resource name, which is not capitalized.
                ..Self::plain(&format!("{why}."))
            };
        }
        Self {
            choices,
            ..Self::plain(&format!("{}.", capital(&why.to_string())))
        }
    }
}

impl Made {
    async fn of(draft: &Draft, asked: &Asked, (site, reader): (&Site, &Reader)) -> Self {
        let profile = &draft.profile;
        let (selector, tolerates) = match &profile.scheduling {
            Scheduling::Node {
                selector,
                tolerations,
            } => (
                selector
                    .iter()
                    .map(|(key, value)| format!("{key}={value}"))
                    .collect(),
                tolerations.iter().map(|one| printable(&one.key)).collect(),
            ),
            Scheduling::Anywhere | Scheduling::Queue { .. } => (Vec::new(), Vec::new()),
        };
        let counts = profile.identifiers.iter().map(IdentifierJson::from);
        Self {
            summary: format!(
                "Made of {}: {}.",
                counted(draft.nodes.len(), "node", "nodes"),
                few(&draft.nodes)
            ),
            counts: counts.map(|one| Count::of(&one)).collect(),
            selector,
            tolerates,
            notes: { draft.notes.iter() }
                .map(|note| printable(&note.to_string()))
                .collect(),
            yaml: yaml(&object(profile)),
            there: There::of(site, draft, &reader.sight),
            offer: Offer::of(reader, draft).await,
            create: asked.command(&reader.origin),
            apply: asked.apply(&reader.origin),
        }
    }
}

impl There {
    /// Finds an existing profile of the draft's name and shows what the reader is allowed to see.
    fn of(site: &Site, draft: &Draft, sight: &Sight) -> Option<Self> {
        let there = site.view.profiles().known(&draft.profile.key)?;
        Some(Self::told(&there, &draft.profile, sight))
    }

    fn told(there: &HardwareProfile, new: &HardwareProfile, sight: &Sight) -> Self {
        let by = there.said.by.as_deref().map(printable);
        let differs = || differences(&object(there), &object(new)).join("\n");
        Self {
            is_ours: by.is_some(),
            by: by.filter(|_| sight.profiles),
            differences: sight.profiles.then(differs),
        }
    }
}

impl Offer {
    fn is_here(&self) -> bool {
        matches!(self, Self::Here)
    }

    async fn of(reader: &Reader, draft: &Draft) -> Self {
        let Some(maker) = &reader.maker else {
            return Self::Off;
        };
        let key = &draft.profile.key;
        match maker.may(&reader.who, key, Existing::Keep).await {
            Ok(()) => Self::Here,
            Err(why) => Self::NotFor(printable(&format!("{}.", capital(&chain(&why))))),
        }
    }
}

fn selected(asked: &Asked) -> String {
    let all: Vec<String> = asked.nodes.iter().cloned().collect();
    match all.as_slice() {
        [] => String::new(),
        all => format!(
            "{} selected: {}",
            counted(all.len(), "node", "nodes"),
            few(all)
        ),
    }
}

/// Lists the first names and the number of the others.
fn few(names: &[String]) -> String {
    let shown: Vec<String> = names
        .iter()
        .take(SHOWN)
        .map(|name| printable(name))
        .collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_selection_is_not_a_long_sentence() {
        let asked = Asked {
            nodes: (10..40).map(|at| format!("node-{at}")).collect(),
            ..Asked::default()
        };
        let text = selected(&asked);
        assert!(
            text.starts_with("30 nodes selected: node-10, node-11, "),
            "{text}"
        );
        assert!(text.ends_with("node-21 and 18 more"), "{text}");
    }

    #[test]
    fn what_another_profile_says_is_for_who_may_list_profiles() {
        let mut there = HardwareProfile::default();
        there.said.by = Some("ada".to_owned());
        let new = HardwareProfile {
            display_name: Some("secret".to_owned()),
            ..HardwareProfile::default()
        };
        let told = |profiles| {
            let sight = Sight {
                profiles,
                ..Sight::everything()
            };
            There::told(&there, &new, &sight)
        };
        let (seen, unseen) = (told(true), told(false));
        assert_eq!(seen.by.as_deref(), Some("ada"));
        assert!(seen.differences.is_some_and(|all| all.contains("secret")));
        assert_eq!((unseen.by, unseen.differences), (None, None));
        assert!(seen.is_ours && unseen.is_ours);
    }
}
