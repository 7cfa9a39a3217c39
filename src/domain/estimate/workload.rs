//! What shall run. A figure outside of what has ever been built is a slip of the pen, and is refused with its field.

use crate::domain::matching::RequestError;

/// Most devices that work together.
pub const MOST_DEVICES: u32 = 100_000;
/// From a toy to a hundred times the largest model that was told of.
const PARAMETERS: (f64, f64) = (1e6, 1e14);
/// From one sentence to more text than there is.
const TOKENS: (f64, f64) = (1.0, 1e16);

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
