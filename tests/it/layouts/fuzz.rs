//! A fuzzer of layout files: randomly changed inputs of the table must satisfy `checks`. The same seed produces the
//! same inputs on every machine.

use std::panic::{AssertUnwindSafe, catch_unwind};

use octavo_model::inventory::Inventory;

use super::{checks, table};

/// Tokens with a meaning in YAML or in layouts.
const TOKENS: &[&str] = &[
    ":",
    "- ",
    "? ",
    "{",
    "}",
    "[",
    "]",
    ",",
    "&a ",
    "*a",
    "<<: *a",
    "!!str ",
    "|",
    ">-",
    "'",
    "\"",
    "\\",
    "#",
    "%YAML 1.1",
    "---",
    "...",
    "\t",
    "\r\n",
    "\r",
    "\u{feff}",
    "\u{0}",
    "\u{85}",
    "\u{2028}",
    "é",
    "🦀",
    "null",
    "~",
    "true",
    "on",
    "-1",
    "0",
    "0x20B210DE",
    "99999999999999999999",
    "1e9",
    "2.0",
    "0-3",
    "3-0",
    "4294967295",
    "all",
    "rest",
    "disabled",
    "40Gi",
    "1g.10gb",
    "1c.3g.40gb",
    "7g.80gb",
    "1g.10gb+me",
    "0g.5gb",
    "version",
    "mig-configs",
    "devices",
    "device-filter",
    "mig-enabled",
    "mig-devices",
    "apiVersion",
    "kind",
    "layouts",
    "mig",
    "timeSlicing",
    "replicas",
    "index",
    "uuid",
    "pci",
    "type",
    "memoryAtLeast",
    "migCapable",
    "sharing",
    "resources",
    "flags",
    "imex",
    "name",
    "nvidia.com/gpu",
    "nvidia.com/mig-1g.10gb",
    "rename",
    "renameByDefault",
    "failRequestsGreaterThanOne",
    "memoryPerReplica",
    "profiles",
    "slice",
    "short",
    "mps",
    "0:1",
    "GPU-efec5a52-f5da-a3f6-5046-d606e70d049f",
    "nvidia-a100-80gb",
];

/// Maximum length of an input; the limit on the length of a file has its own test.
const LONGEST: usize = 8 * 1024;

/// A run of inputs.
pub(crate) struct Fuzzer {
    random: u64,
    /// Accepted inputs: those of the table, then accepted mutations.
    good: Vec<String>,
    /// Number of accepted inputs from the table.
    fixed: usize,
    /// Rejected inputs of the table.
    bad: Vec<String>,
    machines: Vec<Inventory>,
    pub(crate) runs: u64,
    pub(crate) accepted: u64,
}

impl Fuzzer {
    pub(crate) fn new(seed: u64) -> Self {
        let (bad, good): (Vec<_>, Vec<_>) =
            table::cases().into_iter().partition(|case| case.ours == table::Verdict::Error);
        let inputs = |cases: Vec<table::Case>| cases.into_iter().map(|case| case.input).collect();
        let (bad, good): (Vec<String>, Vec<String>) = (inputs(bad), inputs(good));
        Self {
            // Zero would stay zero.
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            fixed: good.len(),
            good,
            bad,
            machines: checks::machines(),
            runs: 0,
            accepted: 0,
        }
    }

    /// Runs one input.
    ///
    /// # Errors
    /// The input that violates a property; the panic names the property.
    pub(crate) fn step(&mut self) -> Result<String, String> {
        let input = self.input();
        let machines = &self.machines;
        // No state is shared with the checked code.
        let checked = catch_unwind(AssertUnwindSafe(|| checks::check(&input, machines)));
        let accepted = checked.map_err(|_| input.clone())?;
        self.runs += 1;
        self.accepted += u64::from(accepted);
        if accepted && self.below(4) == 0 {
            if self.good.len() < self.fixed * 8 {
                self.good.push(input.clone());
            } else {
                let at = self.fixed + self.below(self.good.len() - self.fixed);
                self.good[at].clone_from(&input);
            }
        }
        Ok(input)
    }

    fn input(&mut self) -> String {
        let mut text = self.seed();
        for _ in 0..=self.below(3) {
            self.change(&mut text);
        }
        text.truncate(LONGEST);
        text.into_iter().collect()
    }

    /// Prefers accepted inputs: rejected ones fail early.
    fn seed(&mut self) -> Vec<char> {
        let (good, bad) = (self.good.len(), self.bad.len());
        if self.below(4) == 0 {
            let at = self.below(bad);
            self.bad[at].chars().collect()
        } else {
            let at = self.below(good);
            self.good[at].chars().collect()
        }
    }

    fn change(&mut self, text: &mut Vec<char>) {
        let at = self.below(text.len() + 1);
        match self.below(11) {
            0 => drop(text.splice(at..at, self.token().chars())),
            1 => {
                let end = (at + self.below(8)).min(text.len());
                text.drain(at..end);
            }
            2 if at < text.len() => text[at] = char::from(self.ascii()),
            3 => text.insert(at, char::from(self.ascii())),
            4 => self.number(text, at),
            5 => self.word(text, at),
            6 => self.indent(text, at),
            7 | 8 => self.lines(text, at),
            9 => self.splice(text, at),
            _ => text.truncate(at.max(text.len() / 2)),
        }
    }

    /// Replaces a number.
    fn number(&mut self, text: &mut Vec<char>, at: usize) {
        let is = |c: &char| c.is_ascii_digit();
        let range = run(text, at, is);
        let number = match self.below(4) {
            0 => self.below(10).to_string(),
            1 => self.below(300).to_string(),
            2 => format!("-{}", self.below(3)),
            _ => self.next().to_string(),
        };
        text.splice(range, number.chars());
    }

    /// Replaces a word or key.
    fn word(&mut self, text: &mut Vec<char>, at: usize) {
        let is = |c: &char| c.is_alphanumeric() || matches!(c, '-' | '.' | '+');
        let range = run(text, at, is);
        text.splice(range, self.token().chars());
    }

    /// Changes the indentation of a line.
    fn indent(&mut self, text: &mut Vec<char>, at: usize) {
        let start = line(text, at).start;
        if self.below(2) == 0 {
            text.insert(start, if self.below(5) == 0 { '\t' } else { ' ' });
        } else if text.get(start) == Some(&' ') {
            text.remove(start);
        }
    }

    /// Duplicates, moves or removes a line.
    fn lines(&mut self, text: &mut Vec<char>, at: usize) {
        let range = line(text, at);
        let copy = text[range.clone()].to_vec();
        if self.below(3) > 0 {
            text.drain(range);
        }
        if self.below(3) > 0 {
            let to = self.below(text.len() + 1);
            let to = line(text, to).start;
            text.splice(to..to, copy);
        }
    }

    /// Inserts a part of another input.
    fn splice(&mut self, text: &mut Vec<char>, at: usize) {
        let other = self.seed();
        let from = self.below(other.len() + 1);
        let to = (from + self.below(200)).min(other.len());
        text.splice(at..at, other[from..to].iter().copied());
    }

    fn token(&mut self) -> &'static str {
        TOKENS[self.below(TOKENS.len())]
    }

    fn ascii(&mut self) -> u8 {
        u8::try_from(self.below(128)).unwrap()
    }

    fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap().max(1);
        usize::try_from(self.next() % end).unwrap()
    }

    /// Source: Marsaglia, "Xorshift RNGs", with the multiplication of xorshift64*.
    fn next(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// The first run of such characters from `at`.
fn run(text: &[char], at: usize, is: impl Fn(&char) -> bool) -> std::ops::Range<usize> {
    let from = text[at..].iter().position(&is).map_or(at, |more| at + more);
    let length = text[from..].iter().take_while(|c| is(c)).count();
    from..from + length
}

/// The line that contains `at`, with its line break.
fn line(text: &[char], at: usize) -> std::ops::Range<usize> {
    let before = text[..at].iter().rposition(|c| *c == '\n');
    let after = text[at..].iter().position(|c| *c == '\n');
    before.map_or(0, |index| index + 1)..after.map_or(text.len(), |index| at + index + 1)
}
