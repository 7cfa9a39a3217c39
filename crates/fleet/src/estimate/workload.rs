//! Workload parameters. A figure outside of plausible bounds is rejected as a typo, with the name of its field.

use crate::matching::RequestError;

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
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Workload {
    /// Training of a model.
    Training {
        /// Number of parameters; for a mixture of experts, those active per token.
        parameters: f64,
        /// Number of tokens, counting repetitions.
        tokens: f64,
        /// Number format of the multiplications.
        precision: Precision,
    },
    /// Decoding of one sequence, token by token.
    Decoding {
        /// Number of parameters; for a mixture of experts, those active per token.
        parameters: f64,
        /// Number format of the weights.
        precision: Precision,
    },
}

/// Number format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// bfloat16.
    Bf16,
    /// IEEE half precision.
    Fp16,
    /// Eight-bit floating point.
    Fp8,
}

impl Workload {
    /// Creates a training workload.
    pub fn training(
        parameters: f64,
        tokens: f64,
        precision: Precision,
    ) -> Result<Self, RequestError> {
        Ok(Self::Training {
            parameters: within("workload.parameters", parameters, PARAMETER_RANGE)?,
            tokens: within("workload.tokens", tokens, TOKEN_RANGE)?,
            precision,
        })
    }

    /// Creates a decoding workload.
    pub fn decoding(parameters: f64, precision: Precision) -> Result<Self, RequestError> {
        Ok(Self::Decoding {
            parameters: within("workload.parameters", parameters, PARAMETER_RANGE)?,
            precision,
        })
    }
}

/// Number of tokens in `samples` samples with `each` tokens.
pub fn total_tokens(samples: f64, each: f64) -> Result<f64, RequestError> {
    let samples = within("workload.samples", samples, TOKEN_RANGE)?;
    let each = within("workload.tokensPerSample", each, SAMPLE_TOKEN_RANGE)?;
    within("workload.samples", samples * each, TOKEN_RANGE)
}

/// Validates the number of samples per step.
pub fn validate_batch(samples: f64) -> Result<f64, RequestError> {
    within("workload.batch", samples, BATCH_RANGE)
}

/// Validates the name of a model.
pub fn validate_model_name(name: &str) -> Result<(), RequestError> {
    let is_name = !name.trim().is_empty() && !name.chars().any(char::is_control);
    if is_name && name.chars().count() <= MAX_MODEL_CHARS {
        return Ok(());
    }
    let problem = format!("a model's name has from 1 to {MAX_MODEL_CHARS} characters");
    Err(RequestError::new("workload.model", problem))
}

/// Parses a count such as `7e9`, `7B` or `1.5T`, with the suffixes K, M, B and T for 10^3, 10^6, 10^9 and 10^12. The
/// error is a message for the user.
pub fn parse_count(text: &str) -> Result<f64, String> {
    let wrong = || {
        let text: String = text.chars().take(40).collect();
        format!("{text:?} is no count such as 7B, 1.5T or 7e9")
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
    if number.is_finite() && number > 0.0 {
        Ok(number)
    } else {
        Err(wrong())
    }
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
            format!("{field} must be a number from {least:e} to {most:e}, and is {figure:e}");
        Err(RequestError::new(field, problem))
    }
}

impl Precision {
    /// All number formats.
    pub const ALL: [Self; 3] = [Self::Bf16, Self::Fp16, Self::Fp8];

    /// Name in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
            Self::Fp8 => "fp8",
        }
    }

    /// Size of one number in bytes.
    pub fn bytes(self) -> f64 {
        match self {
            Self::Bf16 | Self::Fp16 => 2.0,
            Self::Fp8 => 1.0,
        }
    }
}

impl std::str::FromStr for Precision {
    type Err = RequestError;

    fn from_str(text: &str) -> Result<Self, RequestError> {
        let known = Self::ALL.into_iter().find(|one| one.as_str() == text);
        known.ok_or_else(|| {
            let text: String = text.chars().take(40).collect();
            let problem = format!("{text:?} is none of bf16, fp16, fp8");
            RequestError::new("workload.precision", problem)
        })
    }
}
