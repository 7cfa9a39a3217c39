//! Workload parameters. A figure outside of plausible bounds is rejected as a typo, with the name of its field.

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, forward_to_deserialize_any};
use serde_with::{DeserializeFromStr, SerializeDisplay, skip_serializing_none};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};
use utoipa::ToSchema;

use crate::request_error::RequestError;

/// Maximum number of devices that work together.
pub const MAX_DEVICES: u32 = 100_000;
/// Number of parameters: from a toy model to a hundred times the largest published model.
const PARAMETER_RANGE: (f64, f64) = (1e6, 1e14);
/// Number of training tokens: from one sentence to more text than exists.
const TOKEN_RANGE: (f64, f64) = (1.0, 1e16);
/// Tokens per sample: from one word to a library.
const SAMPLE_TOKEN_RANGE: (f64, f64) = (1.0, 1e9);
/// Samples per step: from one to more than any cluster processes in one step.
const BATCH_RANGE: (f64, f64) = (1.0, 1e9);
/// Maximum length of a model name in characters.
const MAX_MODEL_CHARS: usize = 100;
/// Suffixes of counts, as in names of models and corpora, with their factors.
const UNITS: [(char, f64); 4] = [('k', 1e3), ('m', 1e6), ('b', 1e9), ('t', 1e12)];

/// Workload to estimate.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(
    tag = "kind",
    rename_all = "kebab-case",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum Workload {
    /// Training of a model.
    Training {
        /// Name of the model, for engines that know it.
        model: Option<String>,
        /// Number of parameters, such as 7e9; for a mixture of experts, those active per token.
        parameters: f64,
        /// Number of tokens, counting repetitions; or else `samples`. A validated workload has it.
        tokens: Option<f64>,
        /// Number of samples, counting repetitions, instead of `tokens`.
        samples: Option<f64>,
        /// Tokens per sample, with `samples`.
        tokens_per_sample: Option<f64>,
        /// Samples per step, for engines that use it.
        batch: Option<f64>,
        /// Number format of the multiplications: `bf16`, `fp16` or `fp8`.
        #[schema(value_type = String)]
        precision: Precision,
    },
    /// Decoding of one sequence, token by token.
    Decoding {
        /// Name of the model, for engines that know it.
        model: Option<String>,
        /// Number of parameters; for a mixture of experts, those active per token.
        parameters: f64,
        /// Number format of the weights: `bf16`, `fp16` or `fp8`.
        #[schema(value_type = String)]
        precision: Precision,
    },
}

/// Number format.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    SerializeDisplay,
    DeserializeFromStr,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "lowercase")]
#[strum(parse_err_ty = RequestError, parse_err_fn = unknown_precision)]
pub enum Precision {
    /// bfloat16.
    Bf16,
    /// IEEE half precision.
    Fp16,
    /// Eight-bit floating point.
    Fp8,
}

impl Workload {
    /// Training on a number of tokens.
    pub fn training(parameters: f64, tokens: f64, precision: Precision) -> Self {
        Self::Training {
            model: None,
            parameters,
            tokens: Some(tokens),
            samples: None,
            tokens_per_sample: None,
            batch: None,
            precision,
        }
    }

    /// Decoding of one sequence.
    pub fn decoding(parameters: f64, precision: Precision) -> Self {
        Self::Decoding { model: None, parameters, precision }
    }

    /// Checks the ranges of all values, and sets the number of tokens of a training.
    pub fn validated(mut self) -> Result<Self, RequestError> {
        let (model, parameters) = match &mut self {
            Self::Training {
                model, parameters, tokens, samples, tokens_per_sample, batch, ..
            } => {
                if let Some(batch) = *batch {
                    within("workload.batch", batch, BATCH_RANGE)?;
                }
                let total = total_tokens(*tokens, *samples, *tokens_per_sample)?;
                *tokens = Some(within("workload.tokens", total, TOKEN_RANGE)?);
                (model, parameters)
            }
            Self::Decoding { model, parameters, .. } => (model, parameters),
        };
        if let Some(name) = model {
            validate_model_name(name)?;
        }
        within("workload.parameters", *parameters, PARAMETER_RANGE)?;
        Ok(self)
    }

    /// Lists the given fields that the built-in estimate ignores.
    pub fn ignored_fields(&self) -> Vec<&'static str> {
        let (model, batch) = match self {
            Self::Training { model, batch, .. } => (model, batch),
            Self::Decoding { model, .. } => (model, &None),
        };
        let name = model.as_ref().map(|_| "the model's name");
        name.into_iter().chain(batch.map(|_| "the batch")).collect()
    }
}

/// Deserializes a workload from an object only. serde also accepts an array for an internally tagged enum.
pub(super) fn from_object<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Workload, D::Error> {
    Workload::deserialize(ObjectOnly(deserializer))
}

/// Deserializer that accepts only an object where any value is expected.
struct ObjectOnly<D>(D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for ObjectOnly<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Number of tokens, given either directly or as samples times tokens per sample.
fn total_tokens(
    tokens: Option<f64>,
    samples: Option<f64>,
    each: Option<f64>,
) -> Result<f64, RequestError> {
    match (tokens, samples, each) {
        (Some(tokens), None, None) => Ok(tokens),
        (None, Some(samples), Some(each)) => {
            let samples = within("workload.samples", samples, TOKEN_RANGE)?;
            let each = within("workload.tokensPerSample", each, SAMPLE_TOKEN_RANGE)?;
            within("workload.samples", samples * each, TOKEN_RANGE)
        }
        _ => {
            let problem = "a training run requires either tokens, or samples and tokensPerSample";
            Err(RequestError::new("workload.tokens", problem))
        }
    }
}

/// Validates the name of a model.
fn validate_model_name(name: &str) -> Result<(), RequestError> {
    let is_name = !name.trim().is_empty() && !name.chars().any(char::is_control);
    if is_name && name.chars().count() <= MAX_MODEL_CHARS {
        return Ok(());
    }
    let problem = format!("a model name must have 1 to {MAX_MODEL_CHARS} characters");
    Err(RequestError::new("workload.model", problem))
}

/// Parses a count such as `7e9`, `7B` or `1.5T`, with the suffixes K, M, B and T for 10^3, 10^6, 10^9 and 10^12. The
/// error is a message for the user.
pub fn parse_count(text: &str) -> Result<f64, String> {
    let wrong = || {
        let text: String = text.chars().take(40).collect();
        format!("{text:?} is not a count such as 7B, 1.5T or 7e9")
    };
    let text = text.trim();
    let last = text.chars().next_back().map(|c| c.to_ascii_lowercase());
    let unit = UNITS.into_iter().find(|(unit, _)| Some(*unit) == last);
    let (digits, times) = match unit {
        Some((_, times)) => (text.get(..text.len().saturating_sub(1)), times),
        None => (Some(text), 1.0),
    };
    let digits = digits.map(str::trim_end).unwrap_or_default();
    // The float parser also accepts words such as `nan` and `infinity`.
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(wrong());
    }
    let number: f64 = digits.parse().map_err(|_| wrong())?;
    let number = number * times;
    if number.is_finite() && number > 0.0 { Ok(number) } else { Err(wrong()) }
}

fn within(
    field: &'static str,
    figure: f64,
    (least, most): (f64, f64),
) -> Result<f64, RequestError> {
    if (least..=most).contains(&figure) {
        Ok(figure)
    } else {
        let problem =
            format!("{field} must be a number from {least:e} to {most:e}, not {figure:e}");
        Err(RequestError::new(field, problem))
    }
}

impl Precision {
    /// All number formats.
    pub const ALL: [Self; 3] = [Self::Bf16, Self::Fp16, Self::Fp8];

    /// Name in documents.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Size of one number in bytes.
    pub fn bytes(self) -> f64 {
        match self {
            Self::Bf16 | Self::Fp16 => 2.0,
            Self::Fp8 => 1.0,
        }
    }
}

fn unknown_precision(text: &str) -> RequestError {
    RequestError::unknown_value::<Precision>("workload.precision", text)
}
