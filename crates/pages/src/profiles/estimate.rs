//! Estimate on a profile's page: training time or decoding speed, and cost, for a workload on the profile's devices.
//!
//! The workload is part of the page's address. If the engine fails or its answer is invalid, the page has no times and
//! gives the reason.

use askama::Template;
use axum::http::Uri;
use octavo_fleet::access::{Visibility, VisibleTypes};
use octavo_fleet::estimate::profile_devices::{
    ProfileDevicesError, default_count, devices_of_profile,
};
use octavo_fleet::estimate::{EstimateAnswer, EstimateRequest, Precision, Workload, parse_count};
use octavo_fleet::hardware_profile::document::ProfileRow;
use octavo_fleet::request_error::RequestError;
use octavo_model::text::shell_word;
use octavo_store::estimates;
use octavo_store::view::FleetView;

use crate::address::query_pairs;
use crate::badges::printable;
use crate::filter_form::{Choice, choices};

/// Default workload.
const TRAINING: &str = "training";
/// Available workloads.
pub(super) const KINDS: [(&str, &str); 2] =
    [(TRAINING, "Training: total time"), ("decoding", "Decoding: speed of one sequence")];
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
        (view, visibility): (&FleetView, &Visibility),
        profile: &ProfileRow,
        (uri, origin): (&Uri, &str),
    ) -> Option<Self> {
        if visibility.types != VisibleTypes::All {
            return None;
        }
        let form = EstimateForm::of(uri);
        let usual = match default_count(profile) {
            Err(ProfileDevicesError::NoAccelerator) => return None,
            usual => usual,
        };
        let outcome = match &usual {
            Err(why) => EstimateOutcome::Unsupported(printable(&why.to_string())),
            Ok(_) if form.parameters.is_empty() => EstimateOutcome::Nothing,
            Ok(_) => match form.request(profile) {
                Err(why) => EstimateOutcome::Invalid(printable(&why)),
                Ok(request) => match estimates::estimate(view, visibility, request).await {
                    Err(error) => EstimateOutcome::Invalid(printable(&error.to_string())),
                    Ok(answer) => {
                        EstimateOutcome::Estimated(EstimateView::of(&answer, &form, profile))
                    }
                },
            },
        };
        let (kinds, precisions) = form.choices();
        Some(Self {
            path: super::href(profile),
            kinds,
            precisions,
            parameters: form.parameters,
            tokens: form.tokens,
            count: form.count,
            usual: { usual.ok().flatten() }.map_or_else(String::new, |count| count.to_string()),
            outcome,
            origin: origin.to_owned(),
        })
    }
}

impl EstimateForm {
    /// Parses the page's address. Unknown parameters are ignored, as on other pages.
    pub(super) fn of(uri: &Uri) -> Self {
        let mut form = Self::default();
        for (name, value) in query_pairs(uri).unwrap_or_default() {
            let value: String = value.trim().chars().take(MAX_VALUE_CHARS).collect();
            match name.as_str() {
                "workload" => form.kind = value,
                "parameters" => form.parameters = value,
                "tokens" => form.tokens = value,
                "precision" => form.precision = value,
                "count" => form.count = value,
                _ => {}
            }
        }
        let known = KINDS.iter().any(|(kind, _)| *kind == form.kind);
        if !known {
            TRAINING.clone_into(&mut form.kind);
        }
        if form.precision.is_empty() {
            Precision::Bf16.as_str().clone_into(&mut form.precision);
        }
        form
    }

    /// Options: workloads and precisions.
    pub(super) fn choices(&self) -> (Vec<Choice>, Vec<Choice>) {
        let kinds = KINDS.map(|(value, word)| (value.to_owned(), word.to_owned()));
        let precisions = Precision::ALL.map(Precision::as_str);
        let precisions = precisions.map(|word| (word.to_owned(), word.to_owned()));
        (
            choices(kinds.into(), &self.kind).collect(),
            choices(precisions.into(), &self.precision).collect(),
        )
    }

    /// Number of devices, if entered.
    pub(super) fn devices(&self) -> Result<Option<u32>, String> {
        match self.count.as_str() {
            "" => Ok(None),
            text => match text.parse() {
                Ok(count) => Ok(Some(count)),
                Err(_) => {
                    Err(format!("invalid number of devices {text:?}: enter a number such as 8"))
                }
            },
        }
    }

    /// The workload to estimate.
    pub(super) fn workload(&self) -> Result<Workload, String> {
        let parameters = parse_count(&self.parameters)?;
        let precision: Precision =
            { self.precision.parse() }.map_err(|error: RequestError| error.to_string())?;
        if self.is_training() {
            if self.tokens.is_empty() {
                return Err("Enter the number of training tokens.".to_owned());
            }
            let tokens = parse_count(&self.tokens)?;
            Ok(Workload::training(parameters, tokens, precision))
        } else {
            Ok(Workload::decoding(parameters, precision))
        }
    }

    fn request(&self, profile: &ProfileRow) -> Result<EstimateRequest, String> {
        let count = self.devices()?;
        let workload = self.workload()?;
        let devices = devices_of_profile(profile, count).map_err(|why| match &why {
            ProfileDevicesError::InvalidCount(..) => {
                "Enter the number of devices: the profile has no default.".to_owned()
            }
            ProfileDevicesError::NoAccelerator
            | ProfileDevicesError::MultipleAccelerators(_)
            | ProfileDevicesError::NotWholeDevice(_)
            | ProfileDevicesError::UnknownType => why.to_string(),
        })?;
        Ok(EstimateRequest { workload, devices: Some(devices), purchase_option: None })
    }

    pub(super) fn is_training(&self) -> bool {
        self.kind == TRAINING
    }

    /// Equivalent command.
    fn command(&self, profile: &ProfileRow) -> String {
        let mut words = vec!["octavo estimate".to_owned(), self.kind.clone()];
        let mut add = |flag: &str, value: &str| {
            if !value.is_empty() {
                words.push(format!("{flag} {}", shell_word(value)));
            }
        };
        add("--parameters", &self.parameters);
        add("--tokens", if self.is_training() { &self.tokens } else { "" });
        add("--precision", &self.precision);
        add("--profile", &profile.name);
        add("--namespace", &profile.namespace);
        add("--count", &self.count);
        words.join(" ")
    }
}

impl EstimateView {
    fn of(answer: &EstimateAnswer, form: &EstimateForm, profile: &ProfileRow) -> Self {
        let all = |texts: &[String]| texts.iter().map(|text| printable(text)).collect();
        let rows = answer.items.iter().map(|row| EstimateLine {
            type_name: printable(row.type_name.as_str()),
            count: row.count,
            figure: row.summary(),
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
            command: printable(&form.command(profile)),
        }
    }
}
