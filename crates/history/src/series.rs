//! History of one device or partition.

use std::mem;
use std::sync::Arc;

use octavo_model::id::TypeName;
use octavo_model::quantity::Mebibytes;

use crate::SAMPLES_PER_MINUTE;
use crate::chunk::{CHUNK, GAP, Values, decode, encode};
use crate::key::SeriesKey;
use crate::metric::Metric;
use crate::sample::{DeviceSample, Sample};
use crate::window::Span;

/// History of a device or partition. Times are numbers of 15 s steps.
#[derive(Debug, Clone)]
pub struct Series {
    type_name: Option<TypeName>,
    memory: Mebibytes,
    /// First and last step with a sample.
    first: u32,
    last: u32,
    /// Number of the open chunk of samples. The open chunk of minutes covers four of them.
    chunk: u32,
    /// The open chunks of each metric; `None` without a value.
    open: [Option<Box<OpenChunks>>; Metric::ALL.len()],
    sealed: SealedChunks,
    sealed_minutes: SealedChunks,
}

/// Uncompressed values of one metric.
#[derive(Debug, Clone)]
struct OpenChunks {
    samples: Values,
    minutes: Values,
}

/// Compressed chunks, each with its number and the values of all metrics; the oldest is first.
#[derive(Debug, Clone, Default)]
struct SealedChunks {
    bytes: Arc<[u8]>,
    /// Number and bytes of each chunk.
    index: Arc<[(u32, u16)]>,
}

const STEPS_PER_CHUNK: u32 = 60;
/// Chunks of samples per chunk of minutes.
const CHUNKS_PER_HOUR: u32 = SAMPLES_PER_MINUTE;
/// Bytes of an `Arc` besides its content.
const ARC_BYTES: usize = 2 * size_of::<usize>();

/// Number of the chunk of samples that contains `step`.
pub(crate) fn chunk_of(step: u32) -> u32 {
    step / STEPS_PER_CHUNK
}

impl Series {
    pub(crate) fn new(of: &DeviceSample, step: u32) -> Self {
        let mut series = Self {
            type_name: None,
            memory: Mebibytes::default(),
            first: step,
            last: step,
            chunk: chunk_of(step),
            open: Default::default(),
            sealed: SealedChunks::default(),
            sealed_minutes: SealedChunks::default(),
        };
        series.write(of, step);
        series
    }

    /// Type of the device, as of the last sample.
    pub fn type_name(&self) -> Option<&TypeName> {
        self.type_name.as_ref()
    }

    /// Memory of the device or partition, as of the last sample.
    pub fn memory(&self) -> Mebibytes {
        self.memory
    }

    /// First and last step with a sample.
    pub(crate) fn steps(&self) -> (u32, u32) {
        (self.first, self.last)
    }

    /// Returns whether its open chunk ends before `step`.
    pub(crate) fn is_before(&self, step: u32) -> bool {
        self.chunk < chunk_of(step)
    }

    /// Adds a sample, unless it is not newer than the last one.
    pub(crate) fn record(&mut self, of: &DeviceSample, step: u32) {
        if step > self.last {
            self.seal_before(step);
            self.write(of, step);
        }
    }

    fn write(&mut self, of: &DeviceSample, step: u32) {
        self.last = step;
        self.memory = of.memory;
        if self.type_name != of.type_name {
            self.type_name.clone_from(&of.type_name);
        }
        let Sample(values) = of.sample;
        for ((metric, value), open) in Metric::ALL.into_iter().zip(values).zip(&mut self.open) {
            if value != GAP {
                open.get_or_insert_with(Box::default).write(metric, step, value);
            }
        }
    }

    /// Compresses chunks that end before `step`, and drops those that are too old.
    pub(crate) fn seal_before(&mut self, step: u32) {
        if !self.is_before(step) {
            return;
        }
        let chunk = chunk_of(step);
        let oldest = |span: Span| span.first_step(step) / span.steps_per_chunk();
        let values = self.open.each_ref().map(|open| open.as_ref().map(|open| &open.samples));
        self.sealed.push(self.chunk, values, oldest(Span::Hour));
        let hour = self.chunk / CHUNKS_PER_HOUR;
        let is_new_hour = hour < chunk / CHUNKS_PER_HOUR;
        if is_new_hour {
            let values = self.open.each_ref().map(|open| open.as_ref().map(|open| &open.minutes));
            self.sealed_minutes.push(hour, values, oldest(Span::Day));
        }
        for open in &mut self.open {
            if is_new_hour {
                *open = None;
            } else if let Some(open) = open {
                open.samples = [GAP; CHUNK];
            }
        }
        self.chunk = chunk;
    }

    /// Returns whether no value is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.iter().all(Option::is_none) && self.sealed_minutes.index.is_empty()
    }

    /// Bytes of memory, with those of its key.
    pub(crate) fn bytes(&self, key: &SeriesKey) -> usize {
        let open = self.open.iter().flatten().count().saturating_mul(size_of::<OpenChunks>());
        let texts = self.type_name.as_ref().map_or(0, |name| name.as_str().len());
        let texts = texts.saturating_add(key.partition.as_ref().map_or(0, |uuid| uuid.len()));
        let parts = [open, texts, self.sealed.bytes(), self.sealed_minutes.bytes()];
        parts.into_iter().fold(size_of::<(SeriesKey, Self)>(), usize::saturating_add)
    }

    /// Writes the values of `metric` from unit `from` of the span to `values`, which contains gaps.
    pub(crate) fn read(&self, metric: Metric, span: Span, from: u32, values: &mut [u8]) {
        let at = metric as usize;
        let open = self.open.get(at).and_then(Option::as_deref);
        let (sealed, open) = match span {
            Span::Hour => (&self.sealed, open.map(|open| (self.chunk, &open.samples))),
            Span::Day => {
                let open = open.map(|open| (self.chunk / CHUNKS_PER_HOUR, &open.minutes));
                (&self.sealed_minutes, open)
            }
        };
        sealed.for_each(at, |chunk, part| copy(chunk, part, from, values));
        if let Some((chunk, part)) = open {
            copy(chunk, part, from, values);
        }
    }
}

/// Copies the values of a chunk to their place.
fn copy(chunk: u32, part: &Values, from: u32, values: &mut [u8]) {
    let start = i64::from(chunk) * i64::from(STEPS_PER_CHUNK) - i64::from(from);
    let before = usize::try_from(start.saturating_neg()).unwrap_or_default();
    let place = values.iter_mut().skip(usize::try_from(start).unwrap_or_default());
    for (to, value) in place.zip(part.iter().skip(before)) {
        *to = *value;
    }
}

impl Default for OpenChunks {
    fn default() -> Self {
        Self { samples: [GAP; CHUNK], minutes: [GAP; CHUNK] }
    }
}

impl OpenChunks {
    /// Sets a sample, and calculates the value of its minute from all samples of the minute.
    fn write(&mut self, metric: Metric, step: u32, value: u8) {
        let place = |number: u32| usize::try_from(number % STEPS_PER_CHUNK).unwrap_or_default();
        if let Some(sample) = self.samples.get_mut(place(step)) {
            *sample = value;
        }
        let minute = step / SAMPLES_PER_MINUTE;
        let begin = place(minute * SAMPLES_PER_MINUTE);
        let samples = self.samples.iter().skip(begin).take(4).copied();
        let samples = samples.filter(|sample| *sample != GAP);
        let value = if metric.is_maximum() { samples.max() } else { mean(samples) };
        if let (Some(minute), Some(value)) = (self.minutes.get_mut(place(minute)), value) {
            *minute = value;
        }
    }
}

/// Mean, rounded to the nearest.
fn mean(values: impl Iterator<Item = u8> + Clone) -> Option<u8> {
    let count = u32::try_from(values.clone().count()).unwrap_or_default();
    let sum: u32 = values.map(u32::from).sum();
    u8::try_from((sum + count / 2).checked_div(count)?).ok()
}

impl SealedChunks {
    /// Adds a chunk, and drops those before `oldest`.
    fn push(&mut self, chunk: u32, values: [Option<&Values>; Metric::ALL.len()], oldest: u32) {
        let mut bytes = Vec::new();
        let mut index = Vec::new();
        for (old, part) in self.chunks().filter(|(old, _)| *old >= oldest) {
            index.push((old, u16::try_from(part.len()).unwrap_or(u16::MAX)));
            bytes.extend_from_slice(part);
        }
        let has_value = values.iter().flatten().any(|values| values.iter().any(|one| *one != GAP));
        if chunk >= oldest && has_value {
            let begin = bytes.len();
            for values in values {
                encode(values.unwrap_or(&[GAP; CHUNK]), &mut bytes);
            }
            let len = bytes.len().saturating_sub(begin);
            index.push((chunk, u16::try_from(len).unwrap_or(u16::MAX)));
        }
        *self = Self { bytes: bytes.into(), index: index.into() };
    }

    /// Number and bytes of each chunk.
    fn chunks(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let mut rest: &[u8] = &self.bytes;
        self.index.iter().map_while(move |(chunk, len)| {
            let (part, after) = mem::take(&mut rest).split_at_checked(usize::from(*len))?;
            rest = after;
            Some((*chunk, part))
        })
    }

    /// Calls `visit` with the values of the metric at position `at` in each chunk.
    fn for_each(&self, at: usize, mut visit: impl FnMut(u32, &Values)) {
        let mut values = [GAP; CHUNK];
        for (chunk, mut part) in self.chunks() {
            let decoded = (0..=at).try_for_each(|_| {
                part = decode(part, &mut values)?;
                Some(())
            });
            if decoded.is_some() {
                visit(chunk, &values);
            }
        }
    }

    fn bytes(&self) -> usize {
        let index = size_of_val(&*self.index);
        (2 * ARC_BYTES).saturating_add(index).saturating_add(self.bytes.len())
    }
}
