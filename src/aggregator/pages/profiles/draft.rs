//! A new hardware profile, made of the nodes that were selected in the list: a form that is filled in, what is to be known of it, the
//! object, how it differs from the one of its name that there is, and the commands that make it. Where the aggregator makes profiles
//! and the reader may, buttons that try it and make it.
//!
//! What was selected in the list is sent, never a part of the address: an address has no room for the names of a thousand nodes. An
//! address may name nodes all the same, so that a page of a few can be sent to somebody who may make profiles.

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

/// Names of nodes that a sentence has.
const SHOWN: usize = 12;

/// The page.
#[derive(Template)]
#[template(path = "draft.html")]
pub(super) struct DraftPage {
    assets: Assets,
    asked: Asked,
    selected: String,
    /// What came of making it.
    answer: Option<Answer>,
    /// Why there is none.
    refused: Option<Refused>,
    counts: Vec<CountFields>,
    taints: Vec<TaintBox>,
    made: Option<Made>,
    origin: String,
    /// How the form is sent: as the page was asked for.
    method: &'static str,
}

impl DraftPage {
    /// A field that is always sent says that taints were chosen, also when none is.
    const NO_TAINT: &str = NO_TAINT;
}

/// Who asks for the page and what they may see, where they reached this server, and what makes profiles for them.
pub(super) struct Reader {
    pub(super) who: Who,
    pub(super) sight: Sight,
    pub(super) maker: Option<Maker>,
    pub(super) origin: String,
}

/// Why there is no profile, and what would help.
#[derive(Debug)]
struct Refused {
    why: String,
    choices: Vec<Choice>,
    /// The counts that are wrong.
    counts: Option<(String, Part)>,
}

/// The same with one thing chosen: another field of the form.
#[derive(Debug)]
struct Choice {
    name: &'static str,
    value: String,
    word: String,
}

/// The profile that could be made.
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

/// A profile of this name that the cluster has.
#[derive(Debug)]
struct There {
    /// Whether it says that it was made so, too; the cluster knows for sure.
    is_ours: bool,
    by: Option<String>,
    /// What differs; nothing where the reader may not see what profiles say.
    differences: Option<String>,
}

/// Whether it can be made here.
#[derive(Debug)]
enum Offer {
    /// Nothing is.
    Off,
    /// Why not.
    NotFor(String),
    /// It is.
    Here,
}

/// What came of looking for a draft: the one without what was said of counts and taints, and the one with it.
struct Drafted {
    plain: Option<Draft>,
    draft: Result<Draft, (StatusCode, Refused)>,
}

/// What an address asks for.
pub(super) async fn page(site: &Site, uri: &Uri, reader: Reader) -> (StatusCode, DraftPage) {
    let asked = Asked::of(uri);
    let (status, page) = shown(site, asked, &reader, None).await;
    let method = "get";
    (status, DraftPage { method, ..page })
}

/// What was sent: shown, and where that is asked for tried or made before, with what came of it.
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
                // The name of a resource stays as it is.
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
    /// What is known of one of the draft's name, and may be.
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

/// The first names, and how many more there are.
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
