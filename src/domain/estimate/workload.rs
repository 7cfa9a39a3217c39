//! What shall run. A figure outside of what has ever been built is a slip of the pen, and is refused with its field.

use crate::domain::matching::RequestError;

/// Most devices that work together.
pub const MOST_DEVICES: u32 = 100_000;
/// From a toy to a hundred times the largest model that was told of.
const PARAMETERS: (f64, f64) = (1e6, 1e14);
/// From one sentence to more text than there is.
const TOKENS: (f64, f64) = (1.0, 1e16);
/// From one word to a library.
const TOKENS_OF_SAMPLE: (f64, f64) = (1.0, 1e9);
/// From one sample a step to more than any cluster takes at once.
const BATCH: (f64, f64) = (1.0, 1e9);
/// The longest name of a model.
const LONGEST_MODEL: usize = 100;
/// What stands behind a count, as models and corpora are named, and how many that is.
const UNITS: [(char, f64); 4] = [('k', 1e3), ('m', 1e6), ('b', 1e9), ('t', 1e12)];

/// What shall run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Workload {
    /// A model of so many parameters is trained on so many tokens.
    Training {
        /// Parameters; of a mixture of experts those that one token uses.
        parameters: f64,
        /// Tokens, each time that one is seen.
        tokens: f64,
        /// What is multiplied.
        precision: Precision,
    },
    /// A model of so many parameters writes one sequence, a token at a time.
    Decoding {
        /// Parameters; of a mixture of experts those that one token uses.
        parameters: f64,
        /// What the weights are stored in.
        precision: Precision,
    },
}

/// A number format.
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
    /// A training.
    pub fn training(
        parameters: f64,
        tokens: f64,
        precision: Precision,
    ) -> Result<Self, RequestError> {
        Ok(Self::Training {
            parameters: within("workload.parameters", parameters, PARAMETERS)?,
            tokens: within("workload.tokens", tokens, TOKENS)?,
            precision,
        })
    }

    /// The writing of a sequence.
    pub fn decoding(parameters: f64, precision: Precision) -> Result<Self, RequestError> {
        Ok(Self::Decoding {
            parameters: within("workload.parameters", parameters, PARAMETERS)?,
            precision,
        })
    }
}

/// Tokens of so many samples, each of which has so many.
pub fn tokens_of(samples: f64, each: f64) -> Result<f64, RequestError> {
    let samples = within("workload.samples", samples, TOKENS)?;
    let each = within("workload.tokensPerSample", each, TOKENS_OF_SAMPLE)?;
    within("workload.samples", samples * each, TOKENS)
}

/// Samples that one step takes, if that can be.
pub fn batch(samples: f64) -> Result<f64, RequestError> {
    within("workload.batch", samples, BATCH)
}

/// Whether a model can be called so.
pub fn model(name: &str) -> Result<(), RequestError> {
    let is_name = !name.trim().is_empty() && !name.chars().any(char::is_control);
    if is_name && name.chars().count() <= LONGEST_MODEL {
        return Ok(());
    }
    let problem = format!("a model's name has from 1 to {LONGEST_MODEL} characters");
    Err(RequestError::new("workload.model", problem))
}

/// A count as people write it: `7e9`, `7B`, `1.5T`, with K, M, B and T for thousands, millions, 10^9 and 10^12. The text says why it is none.
pub fn amount(text: &str) -> Result<f64, String> {
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
    // Words such as `nan` and `infinity` are numbers to the parser.
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
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Bf16, Self::Fp16, Self::Fp8];

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
            Self::Fp8 => "fp8",
        }
    }

    /// Bytes of one number.
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
