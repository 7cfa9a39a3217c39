//! Random changes of an input. The same seed produces the same changes on every machine.

use std::ops::Range;

/// Texts with a meaning in YAML, JSON, CSV, URLs or sysfs, and values at the limits of types, separated by `¦`.
const TOKENS: &str = "\
:¦- ¦? ¦{¦}¦[¦]¦,¦;¦=¦ = ¦&¦%2C¦%00¦?¦(¦)¦!¦!=¦ in ¦/¦..¦../¦&a ¦*a¦<<: *a¦!!str ¦!!binary ¦|¦>-¦'¦\"¦\\¦\\n¦#¦%YAML 1.1¦---¦...¦\
\t¦\n¦\r\n¦\r¦\u{feff}¦\0¦\x1b[31m¦\u{85}¦\u{2028}¦é¦🦀¦null¦~¦true¦false¦on¦-1¦0¦1¦0x20B210DE¦18446744073709551615¦\
18446744073709551616¦9223372036854775807¦-9223372036854775808¦4294967295¦2147483648¦65536¦1e9¦1e999¦2.0¦-0.0¦NaN¦inf¦0-3¦3-0¦0,1¦\
40Gi¦1k¦100%¦9999-12-31¦-009999-01-01T00:00:00Z¦2026-02-30¦24:00¦P1D¦1g.10gb¦1c.3g.40gb¦1g.10gb+me";

/// Numbers at the limits of the types of Protobuf.
const NUMBERS: [u64; 8] =
    [0, 1, 0x7f, 0x80, 0x7fff_ffff, 0xffff_ffff, 0x7fff_ffff_ffff_ffff, u64::MAX];

/// Maximum length of an input. Limits on the length of a file have their own tests.
pub(crate) const MAX_BYTES: usize = 32 * 1024;

/// Maximum number of harvested words.
const MAX_WORDS: usize = 4096;

/// Syntax of the inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syntax {
    /// Text in lines.
    Text,
    /// Protobuf: the lengths of nested messages stay consistent.
    Protobuf,
    /// Bytes.
    Binary,
}

/// Source: Marsaglia, "Xorshift RNGs", with the multiplication of xorshift64*.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        // Zero would stay zero.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap().max(1);
        usize::try_from(self.next() % end).unwrap()
    }

    pub(crate) fn one_of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[7]
    }
}

/// Changes inputs of one syntax.
pub(crate) struct Mutator {
    pub(crate) random: Random,
    syntax: Syntax,
    tokens: Vec<&'static str>,
    /// Words of the seeds.
    words: Vec<Vec<u8>>,
}

impl Mutator {
    pub(crate) fn new(seed: u64, syntax: Syntax, seeds: &[Vec<u8>]) -> Self {
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._+/".contains(byte);
        let all = seeds.iter().flat_map(|seed| seed.split(|byte| !is_word(byte)));
        let mut words: Vec<_> =
            all.filter(|word| (2..=64).contains(&word.len())).map(<[u8]>::to_vec).collect();
        words.sort_unstable();
        words.dedup();
        // Spread over the alphabet, if there are too many.
        let step = words.len().div_ceil(MAX_WORDS).max(1);
        let words = words.into_iter().step_by(step).collect();
        Self { random: Random::new(seed), syntax, tokens: TOKENS.split('¦').collect(), words }
    }

    /// Changes the input in one to three places. `other` is a part of another input.
    pub(crate) fn mutate(&mut self, input: &mut Vec<u8>, other: &[u8]) {
        for _ in 0..=self.random.below(3) {
            match self.syntax {
                Syntax::Protobuf if self.random.below(8) > 0 => self.field(input, other, 0),
                Syntax::Text => self.text(input, other),
                Syntax::Protobuf | Syntax::Binary => self.bytes(input, other),
            }
        }
        input.truncate(MAX_BYTES);
    }

    fn text(&mut self, text: &mut Vec<u8>, other: &[u8]) {
        let at = self.random.below(text.len() + 1);
        match self.random.below(10) {
            0 => drop(text.splice(at..at, self.token())),
            1 | 2 => self.number(text, at),
            3 | 4 => {
                let range =
                    run(text, at, |byte| byte.is_ascii_alphanumeric() || b"-.+_".contains(byte));
                text.splice(range, self.token());
            }
            5 => self.indent(text, at),
            6 | 7 => self.lines(text, at),
            _ => self.bytes(text, other),
        }
    }

    fn bytes(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let at = self.random.below(bytes.len() + 1);
        match self.random.below(8) {
            0 => {
                let end = (at + self.random.below(8)).min(bytes.len());
                bytes.drain(at..end);
            }
            1 if at < bytes.len() => bytes[at] = self.ascii(),
            2 => bytes.insert(at, self.ascii()),
            3 if at < bytes.len() => bytes[at] ^= 1 << self.random.below(8),
            4 if at < bytes.len() && self.syntax != Syntax::Text => bytes[at] = self.random.byte(),
            4 => {
                let end = (at + self.random.below(32)).min(bytes.len());
                let copy = bytes[at..end].repeat(1 + self.random.below(8));
                bytes.splice(at..at, copy);
            }
            5 => {
                let from = self.random.below(other.len() + 1);
                let to = (from + self.random.below(200)).min(other.len());
                bytes.splice(at..at, other[from..to].iter().copied());
            }
            6 => drop(bytes.splice(at..at, self.token())),
            _ => bytes.truncate(at.max(bytes.len() / 2)),
        }
    }

    /// Replaces a decimal number.
    fn number(&mut self, text: &mut Vec<u8>, at: usize) {
        let range = run(text, at, u8::is_ascii_digit);
        let number = match self.random.below(5) {
            0 => self.random.below(10).to_string(),
            1 => self.random.below(300).to_string(),
            2 => format!("-{}", self.random.below(3)),
            3 => self.random.one_of(&NUMBERS).to_string(),
            _ => self.random.next().to_string(),
        };
        text.splice(range, number.into_bytes());
    }

    /// Changes the indentation of a line.
    fn indent(&mut self, text: &mut Vec<u8>, at: usize) {
        let start = line(text, at).start;
        if self.random.below(2) == 0 {
            text.insert(start, if self.random.below(5) == 0 { b'\t' } else { b' ' });
        } else if text.get(start) == Some(&b' ') {
            text.remove(start);
        }
    }

    /// Duplicates, moves or removes a line.
    fn lines(&mut self, text: &mut Vec<u8>, at: usize) {
        let range = line(text, at);
        let copy = text[range.clone()].to_vec();
        if self.random.below(3) > 0 {
            text.drain(range);
        }
        if self.random.below(3) > 0 {
            let to = self.random.below(text.len() + 1);
            let to = line(text, to).start;
            text.splice(to..to, copy);
        }
    }

    /// Changes a field of a Protobuf message, or of a message in it, and corrects the lengths.
    fn field(&mut self, message: &mut Vec<u8>, other: &[u8], depth: usize) {
        let all = fields(message);
        if all.is_empty() {
            return self.bytes(message, other);
        }
        let Field { whole, value, is_number } = all[self.random.below(all.len())].clone();
        let value = if is_number {
            let number = *self.random.one_of(&NUMBERS);
            varint(if self.random.below(2) == 0 { number } else { self.random.next() % 1000 })
        } else {
            let mut inner = message[value].to_vec();
            match self.random.below(8) {
                0 => {
                    let copy = message[whole].to_vec();
                    let to = self.random.one_of(&all).whole.start;
                    message.splice(to..to, copy);
                    return;
                }
                1 => {
                    message.drain(whole);
                    return;
                }
                2 => self.bytes(&mut inner, other),
                3 => self.text(&mut inner, other),
                _ if depth < 8 => self.field(&mut inner, other, depth + 1),
                _ => self.bytes(&mut inner, other),
            }
            let mut value = varint(inner.len() as u64);
            value.append(&mut inner);
            value
        };
        let tag = number_at(message, whole.start).map_or(whole.start, |(_, end)| end);
        message.splice(tag..whole.end, value);
    }

    fn token(&mut self) -> Vec<u8> {
        if self.words.is_empty() || self.random.below(3) == 0 {
            self.random.one_of(&self.tokens).as_bytes().to_vec()
        } else {
            self.random.one_of(&self.words).clone()
        }
    }

    fn ascii(&mut self) -> u8 {
        self.random.byte() & 0x7f
    }
}

/// A field of a Protobuf message.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    whole: Range<usize>,
    /// The value, without its length.
    pub(crate) value: Range<usize>,
    is_number: bool,
}

/// The fields up to the first malformed one. Source: Protocol Buffers, "Encoding".
pub(crate) fn fields(message: &[u8]) -> Vec<Field> {
    let mut all = Vec::new();
    let mut at = 0;
    while let Some((tag, start)) = number_at(message, at) {
        let kind = tag & 7;
        let value = match kind {
            0 => number_at(message, start).map(|(_, end)| start..end),
            1 => Some(start..start + 8),
            2 => number_at(message, start).and_then(|(length, start)| {
                Some(start..start.checked_add(length.try_into().ok()?)?)
            }),
            5 => Some(start..start + 4),
            _ => None,
        };
        let Some(value) = value.filter(|value| value.end <= message.len()) else { break };
        // Numbers of a fixed size have no length to correct.
        if matches!(kind, 0 | 2) {
            all.push(Field { whole: at..value.end, value: value.clone(), is_number: kind == 0 });
        }
        at = value.end;
    }
    all
}

/// The variable-length number at an offset, and its end.
fn number_at(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let length = bytes.get(at..)?.iter().take(10).position(|byte| byte & 0x80 == 0)? + 1;
    let digits = bytes[at..at + length].iter().rev();
    Some((digits.fold(0, |number, byte| (number << 7) | u64::from(byte & 0x7f)), at + length))
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
    bytes
}

/// A Protobuf message with these values of field 1: a sequence of messages as one input.
pub(crate) fn sequence(messages: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let fields = messages
        .into_iter()
        .map(|message| [&[0x0a][..], &varint(message.len() as u64), &message].concat());
    fields.collect::<Vec<_>>().concat()
}

/// The first run of such bytes from `at`.
fn run(text: &[u8], at: usize, is: impl Fn(&u8) -> bool) -> Range<usize> {
    let from = text[at..].iter().position(&is).map_or(at, |more| at + more);
    let length = text[from..].iter().take_while(|byte| is(byte)).count();
    from..from + length
}

/// The line that contains `at`, with its line break.
fn line(text: &[u8], at: usize) -> Range<usize> {
    let before = text[..at].iter().rposition(|byte| *byte == b'\n');
    let after = text[at..].iter().position(|byte| *byte == b'\n');
    before.map_or(0, |index| index + 1)..after.map_or(text.len(), |index| at + index + 1)
}
