//! Estimate on a profile's page: training time or decoding speed, and cost, for a workload on the profile's devices.
//!
//! The workload is part of the page's address. If the engine fails or its answer is invalid, the page has no times and
//! gives the reason.

use askama::Template;
use axum::extract::Query;
use axum::http::Uri;
use octavo_documents::estimates::{
    EstimateAnswer, EstimateRequest, ProfileDevicesError, WorkloadJson, default_count,
    devices_of_profile,
};
use octavo_documents::hardware_profiles::document::ProfileRow;
use octavo_fleet::access::{Sight, Types};
use octavo_fleet::estimate::{Precision, parse_count};
use octavo_store::estimates;
use octavo_store::view::View;

use crate::address::quoted;
use crate::format::printable;

/// Default workload.
const TRAINING: &str = "training";
/// Available workloads.
pub(super) const KINDS: [(&str, &str); 2] = [
    (TRAINING, "A training: how long it takes"),
    ("decoding", "Writing: how fast one sequence is"),
];
/// Maximum length of a value repeated in the form, in characters.
const MAX_VALUE_CHARS: usize = 32;

/// The form and the answer.
#[derive(Debug, Template)]
#[template(path = "estimate.html")]
pub(super) struct Estimate {
    path: String,
    kinds: Vec<Choice>,
    precisions: Vec<Choice>,
    parameters: String,
    tokens: String,
    count: String,
    /// Default number of devices; empty if the user has to enter one.
    usual: String,
    outcome: EstimateOutcome,
    /// Base URL by which the reader reached this server, for the command.
    origin: String,
}

/// Content below the form.
#[derive(Debug)]
enum EstimateOutcome {
    /// No workload was entered.
    Nothing,
    /// The profile does not support estimates.
    Unsupported(String),
    /// The workload is invalid.
    Invalid(String),
    /// Estimates.
    Estimated(EstimateView),
}

/// Option of a drop-down list.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) value: &'static str,
    pub(super) word: &'static str,
    pub(super) chosen: bool,
}

#[derive(Debug)]
struct EstimateView {
    /// Why there are no times.
    reason: Option<String>,
    rows: Vec<EstimateLine>,
    source: String,
    assumptions: Vec<String>,
    notices: Vec<String>,
    /// Equivalent command.
    command: String,
}

#[derive(Debug)]
struct EstimateLine {
    type_name: String,
    count: u32,
    figure: Option<String>,
    interpolated: bool,
    cost: Option<String>,
    why_not: Option<String>,
}

/// Fields of the form, from the address.
#[derive(Debug, Default)]
pub(super) struct EstimateForm {
    pub(super) kind: String,
    pub(super) parameters: String,
    pub(super) tokens: String,
    pub(super) precision: String,
    pub(super) count: String,
}

impl Estimate {
    /// Builds the section for `profile`. `None` for a profile without an accelerator, and for a reader of single types,
    /// whose requests the API refuses too.
    pub(super) async fn of(
        (view, sight): (&View, &Sight),
        profile: &ProfileRow,
        (uri, origin): (&Uri, &str),
    ) -> Option<Self> {
        if sight.types != Types::All {
            return None;
        }
        let asked = EstimateForm::of(uri);
        let usual = match default_count(profile) {
            Err(ProfileDevicesError::NoAccelerator) => return None,
            usual => usual,
        };
        let outcome = match &usual {
            Err(why) => EstimateOutcome::Unsupported(printable(&why.to_string())),
            Ok(_) if asked.parameters.is_empty() => EstimateOutcome::Nothing,
            Ok(_) => match asked.request(profile) {
                Err(why) => EstimateOutcome::Invalid(printable(&why)),
                Ok(request) => match estimates::estimate(view, sight, request).await {
                    Err(error) => EstimateOutcome::Invalid(printable(&error.to_string())),
                    Ok(answer) => {
                        EstimateOutcome::Estimated(EstimateView::of(&answer, &asked, profile))
                    }
                },
            },
        };
        let (kinds, precisions) = asked.choices();
        Some(Self {
            path: super::href(profile),
            kinds,
            precisions,
            parameters: asked.parameters,
            tokens: asked.tokens,
            count: asked.count,
            usual: { usual.ok().flatten() }.map_or_else(String::new, |count| count.to_string()),
            outcome,
            origin: origin.to_owned(),
        })
    }

    fn impossible(&self) -> Option<&str> {
        match &self.outcome {
            EstimateOutcome::Unsupported(why) => Some(why),
            EstimateOutcome::Nothing
            | EstimateOutcome::Invalid(_)
            | EstimateOutcome::Estimated(_) => None,
        }
    }

    fn refused(&self) -> Option<&str> {
        match &self.outcome {
            EstimateOutcome::Invalid(why) => Some(why),
            EstimateOutcome::Nothing
            | EstimateOutcome::Unsupported(_)
            | EstimateOutcome::Estimated(_) => None,
        }
    }

    fn told(&self) -> Option<&EstimateView> {
        match &self.outcome {
            EstimateOutcome::Estimated(told) => Some(told),
            EstimateOutcome::Nothing
            | EstimateOutcome::Unsupported(_)
            | EstimateOutcome::Invalid(_) => None,
        }
    }
}

impl EstimateForm {
    /// Parses the page's address. Unknown parameters are ignored, as on other pages.
    pub(super) fn of(uri: &Uri) -> Self {
        let mut asked = Self::default();
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri);
        let pairs = pairs.map(|Query(pairs)| pairs).unwrap_or_default();
        for (name, value) in pairs {
            let value: String = value.trim().chars().take(MAX_VALUE_CHARS).collect();
            match name.as_str() {
                "workload" => asked.kind = value,
                "parameters" => asked.parameters = value,
                "tokens" => asked.tokens = value,
                "precision" => asked.precision = value,
                "count" => asked.count = value,
                _ => {}
            }
        }
        let known = KINDS.iter().any(|(kind, _)| *kind == asked.kind);
        if !known {
            TRAINING.clone_into(&mut asked.kind);
        }
        if asked.precision.is_empty() {
            Precision::Bf16.as_str().clone_into(&mut asked.precision);
        }
        asked
    }

    /// Options: workloads and precisions.
    pub(super) fn choices(&self) -> (Vec<Choice>, Vec<Choice>) {
        let choice = |now: &str, value: &'static str, word: &'static str| Choice {
            value,
            word,
            chosen: now == value,
        };
        let kinds = KINDS.map(|(value, word)| choice(&self.kind, value, word));
        let precisions = Precision::ALL.map(Precision::as_str);
        let precisions = precisions.map(|word| choice(&self.precision, word, word));
        (kinds.into(), precisions.into())
    }

    /// Number of devices, if entered.
    pub(super) fn devices(&self) -> Result<Option<u64>, String> {
        match self.count.as_str() {
            "" => Ok(None),
            text => match text.parse() {
                Ok(count) => Ok(Some(count)),
                Err(_) => Err(format!("{text:?} is no number of devices such as 8")),
            },
        }
    }

    /// The workload to estimate.
    pub(super) fn workload(&self) -> Result<WorkloadJson, String> {
        let parameters = parse_count(&self.parameters)?;
        let precision = self.precision.clone();
        if self.is_training() {
            if self.tokens.is_empty() {
                return Err("Say how many tokens it is trained on, too.".to_owned());
            }
            Ok(WorkloadJson::Training {
                model: None,
                parameters,
                tokens: Some(parse_count(&self.tokens)?),
                samples: None,
                tokens_per_sample: None,
                batch: None,
                precision,
            })
        } else {
            Ok(WorkloadJson::Decoding {
                model: None,
                parameters,
                precision,
            })
        }
    }

    fn request(&self, profile: &ProfileRow) -> Result<EstimateRequest, String> {
        let count = self.devices()?;
        let workload = self.workload()?;
        let devices = devices_of_profile(profile, count).map_err(|why| match &why {
            ProfileDevicesError::InvalidCount(..) => {
                "Say on how many devices together: the profile names no number of them.".to_owned()
            }
            ProfileDevicesError::NoAccelerator
            | ProfileDevicesError::MultipleAccelerators(_)
            | ProfileDevicesError::NotWholeDevice(_)
            | ProfileDevicesError::UnknownType => why.to_string(),
        })?;
        Ok(EstimateRequest {
            workload,
            devices: Some(devices),
            purchase_option: None,
        })
    }

    pub(super) fn is_training(&self) -> bool {
        self.kind == TRAINING
    }

    /// Equivalent command.
    fn command(&self, profile: &ProfileRow) -> String {
        let mut words = vec!["octavo estimate".to_owned(), self.kind.clone()];
        let mut say = |flag: &str, value: &str| {
            if !value.is_empty() {
                words.push(format!("{flag} {}", quoted(value)));
            }
        };
        say("--parameters", &self.parameters);
        say(
            "--tokens",
            if self.is_training() { &self.tokens } else { "" },
        );
        say("--precision", &self.precision);
        say("--profile", &profile.name);
        say("--namespace", &profile.namespace);
        say("--count", &self.count);
        words.join(" ")
    }
}

impl EstimateView {
    fn of(answer: &EstimateAnswer, asked: &EstimateForm, profile: &ProfileRow) -> Self {
        let all = |texts: &[String]| texts.iter().map(|text| printable(text)).collect();
        let rows = answer.items.iter().map(|row| EstimateLine {
            type_name: printable(&row.type_name),
            count: row.count,
            figure: row.said(),
            interpolated: row.interpolated,
            cost: row.cost.as_ref().map(|cost| printable(&cost.to_string())),
            why_not: row.why_not.as_deref().map(printable),
        });
        Self {
            reason: answer.reason.as_deref().map(printable),
            rows: rows.collect(),
            source: printable(&answer.source),
            assumptions: all(&answer.assumptions),
            notices: all(&answer.notices),
            command: printable(&asked.command(profile)),
        }
    }
}
