//! A run of one target: randomly changed seeds must satisfy the target's properties.

use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use octavo_model::digest::Digest;

use super::mutation::{MAX_BYTES, Mutator, Random, Syntax};

/// Result of a check that found no violation.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The decoder accepts the input.
    Accepted,
    /// The decoder rejects the input with this message.
    Rejected(String),
}

impl Outcome {
    pub(crate) fn from_result<T, E: std::fmt::Display>(result: &Result<T, E>) -> Self {
        match result {
            Ok(_) => Self::Accepted,
            Err(error) => Self::Rejected(error.to_string()),
        }
    }
}

/// Checks an input. Panics if a property does not hold.
pub(crate) type Check = Box<dyn FnMut(&[u8]) -> Outcome>;

/// A decoder with its properties.
pub(crate) struct Target {
    pub(crate) syntax: Syntax,
    pub(crate) seeds: Vec<Vec<u8>>,
    pub(crate) check: Check,
}

impl Target {
    /// A target of texts. Invalid UTF-8 is replaced, as files are decoded before they are parsed.
    pub(crate) fn text<S: AsRef<[u8]>>(
        seeds: impl IntoIterator<Item = S>,
        mut check: impl FnMut(&str) -> Outcome + 'static,
    ) -> Self {
        let check = move |input: &[u8]| check(&String::from_utf8_lossy(input));
        Self::new(Syntax::Text, seeds, check)
    }

    pub(crate) fn new<S: AsRef<[u8]>>(
        syntax: Syntax,
        seeds: impl IntoIterator<Item = S>,
        check: impl FnMut(&[u8]) -> Outcome + 'static,
    ) -> Self {
        let seeds = seeds.into_iter().map(|seed| seed.as_ref().to_vec());
        Self { syntax, seeds: seeds.collect(), check: Box::new(check) }
    }
}

/// Maximum number of inputs of a pool in addition to the seeds.
const MAX_FOUND: usize = 256;

/// Inputs that are changed further.
#[derive(Default)]
struct Pool {
    inputs: Vec<Vec<u8>>,
    seeds: usize,
}

impl Pool {
    fn add(&mut self, input: Vec<u8>, is_seed: bool, random: &mut Random) {
        // A longer input would be cut.
        if input.len() > MAX_BYTES {
            return;
        }
        self.seeds += usize::from(is_seed);
        if is_seed || self.inputs.len() < self.seeds + MAX_FOUND {
            self.inputs.push(input);
        } else {
            let at = self.seeds + random.below(MAX_FOUND);
            self.inputs[at] = input;
        }
    }
}

/// A run of inputs.
pub(crate) struct Fuzzer {
    check: Check,
    mutator: Mutator,
    /// Seeds that have not been checked.
    unchecked: VecDeque<Vec<u8>>,
    accepted_inputs: Pool,
    /// Rejected seeds, and inputs with a message of a new form.
    rejected_inputs: Pool,
    forms: BTreeSet<Digest>,
    pub(crate) last: Vec<u8>,
    pub(crate) runs: u64,
    pub(crate) accepted: u64,
}

impl Fuzzer {
    pub(crate) fn new(target: Target, seed: u64) -> Self {
        Self {
            mutator: Mutator::new(seed, target.syntax, &target.seeds),
            check: target.check,
            unchecked: target.seeds.into(),
            accepted_inputs: Pool::default(),
            rejected_inputs: Pool::default(),
            forms: BTreeSet::new(),
            last: Vec::new(),
            runs: 0,
            accepted: 0,
        }
    }

    /// Runs one input, which is then in [`Fuzzer::last`]. Returns false if it violates a property; the panic names the property.
    pub(crate) fn step(&mut self) -> bool {
        let seed = self.unchecked.pop_front();
        let is_seed = seed.is_some();
        let input = seed.unwrap_or_else(|| self.input());
        self.last.clone_from(&input);
        self.runs += 1;
        let Some(outcome) = self.check(&input) else { return false };
        let random = &mut self.mutator.random;
        match outcome {
            Outcome::Accepted => {
                self.accepted += 1;
                if is_seed || random.below(4) == 0 {
                    self.accepted_inputs.add(input, is_seed, random);
                }
            }
            Outcome::Rejected(message) => {
                if self.forms.insert(form(&message)) || is_seed {
                    self.rejected_inputs.add(input, is_seed, random);
                }
            }
        }
        true
    }

    /// Checks an input. `None` if it violates a property.
    pub(crate) fn check(&mut self, input: &[u8]) -> Option<Outcome> {
        let check = &mut self.check;
        // The state of a target is consistent between calls.
        catch_unwind(AssertUnwindSafe(|| check(input))).ok()
    }

    fn input(&mut self) -> Vec<u8> {
        let mut input = self.any().to_vec();
        let other = self.any().to_vec();
        self.mutator.mutate(&mut input, &other);
        input
    }

    /// Prefers accepted inputs: rejected ones fail early.
    fn any(&mut self) -> &[u8] {
        let random = &mut self.mutator.random;
        let (accepted, rejected) = (&self.accepted_inputs.inputs, &self.rejected_inputs.inputs);
        let is_rejected = !rejected.is_empty() && random.below(5) == 0;
        let pool = if accepted.is_empty() || is_rejected { rejected } else { accepted };
        random.one_of::<Vec<u8>>(pool)
    }
}

/// The fixed words of a message. Quoted texts and numbers depend on the input.
fn form(message: &str) -> Digest {
    let fixed = message.split(['"', '`', '\'']).step_by(2);
    let words: String =
        fixed.flat_map(str::chars).filter(|c| c.is_alphabetic()).take(120).collect();
    Digest::from_bytes(words.as_bytes())
}
