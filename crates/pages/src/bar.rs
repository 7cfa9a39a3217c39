//! Device counts as a bar, with a legend.

use octavo_fleet::summary::{DeviceCounts, DeviceUse};

/// Maximum number of devices drawn as separate segments; more are drawn in proportion.
const MAX_SEGMENTS: u32 = 16;

/// Minimum width of a segment, in hundredths of a percent, so that one device of ten thousand is visible.
const MIN_WIDTH: u64 = 60;

/// Horizontal bar.
#[derive(Debug)]
pub(super) struct Bar {
    /// Accessible description.
    pub(super) label: String,
    /// Height in pixels.
    pub(super) height: u32,
    /// Segments from left to right.
    pub(super) segments: Vec<Segment>,
}

/// Segment of a bar; position and width in percent.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) kind: &'static str,
    pub(super) fill: Option<&'static str>,
    pub(super) x: String,
    pub(super) width: String,
}

/// Entry of a legend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LegendEntry {
    pub(super) kind: &'static str,
    pub(super) fill: Option<&'static str>,
    pub(super) word: &'static str,
    pub(super) count: u32,
}

/// CSS class, fill pattern, label and count of an entry of a legend.
pub(super) type LegendCount = (&'static str, Option<&'static str>, &'static str, u64);

impl Bar {
    /// Bar of these counts.
    pub(super) fn from_counts(counts: DeviceCounts, height: u32) -> Self {
        Self { label: describe_counts(counts), ..Self::from_legend(&legend(counts), height) }
    }

    /// Bar of the entries of a legend.
    pub(super) fn from_legend(keys: &[LegendEntry], height: u32) -> Self {
        let counts = keys.iter().map(|key| key.count);
        let total = counts.fold(0, u32::saturating_add);
        let segments = if total <= MAX_SEGMENTS {
            let each = keys.iter().flat_map(|key| {
                let one = LegendEntry { count: 1, ..*key };
                std::iter::repeat_n(one, usize::try_from(key.count).unwrap_or_default())
            });
            lay_out(each, total, 140)
        } else {
            lay_out(keys.iter().copied(), total, 40)
        };
        Self { label: describe(keys), height, segments }
    }
}

/// Nonzero counts, in the order of the segments.
pub(super) fn legend(counts: DeviceCounts) -> Vec<LegendEntry> {
    let order = [
        DeviceUse::InUse,
        DeviceUse::Partitioned,
        DeviceUse::Free,
        DeviceUse::Unavailable,
        DeviceUse::Passthrough,
        DeviceUse::Unknown,
    ];
    legend_of(order.map(|of| legend_entry(of, counts.count(of).into())))
}

/// Entry of the devices with this use.
pub(super) fn legend_entry(of: DeviceUse, count: u64) -> LegendCount {
    let fill = match of {
        DeviceUse::Partitioned => Some("stripes"),
        DeviceUse::Unavailable => Some("crosses"),
        DeviceUse::Free | DeviceUse::InUse | DeviceUse::Passthrough | DeviceUse::Unknown => None,
    };
    (of.as_str(), fill, of.title(), count)
}

/// Entries of the nonzero counts.
pub(super) fn legend_of(all: impl IntoIterator<Item = LegendCount>) -> Vec<LegendEntry> {
    let all = all.into_iter().filter(|(.., count)| *count > 0);
    all.map(|(kind, fill, word, count)| LegendEntry {
        kind,
        fill,
        word,
        count: u32::try_from(count).unwrap_or(u32::MAX),
    })
    .collect()
}

/// Describes the counts: `2 in use, 6 free`.
pub(super) fn describe_counts(counts: DeviceCounts) -> String {
    describe(&legend(counts))
}

fn describe(keys: &[LegendEntry]) -> String {
    let parts = keys.iter();
    let parts: Vec<String> = parts.map(|key| format!("{} {}", key.count, key.word)).collect();
    if parts.is_empty() { "no device".to_owned() } else { parts.join(", ") }
}

/// Lays out the segments side by side with a gap, in hundredths of a percent.
fn lay_out(keys: impl Iterator<Item = LegendEntry>, total: u32, gap: u64) -> Vec<Segment> {
    let share = |count: u32| {
        let whole = u64::from(count).saturating_mul(10_000_u64.saturating_add(gap));
        whole.checked_div(u64::from(total)).unwrap_or_default()
    };
    let mut before = 0_u32;
    keys.map(|key| {
        let start = share(before);
        before = before.saturating_add(key.count);
        let width = share(before).saturating_sub(start).saturating_sub(gap);
        let width = width.max(MIN_WIDTH);
        let start = start.min(10_000_u64.saturating_sub(width));
        Segment { kind: key.kind, fill: key.fill, x: percent(start), width: percent(width) }
    })
    .collect()
}

fn percent(hundredths: u64) -> String {
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(counts: DeviceCounts) -> Vec<(&'static str, String, String)> {
        let bar = Bar::from_counts(counts, 12);
        let segments = bar.segments.into_iter();
        segments.map(|segment| (segment.kind, segment.x, segment.width)).collect()
    }

    #[test]
    fn each_device_of_a_node_is_a_segment() {
        let counts = DeviceCounts { total: 8, free: 6, in_use: 2, ..DeviceCounts::default() };
        let drawn = drawn(counts);
        let kinds: Vec<&str> = drawn.iter().map(|(kind, ..)| *kind).collect();
        assert_eq!(kinds, [&["in-use"; 2][..], &["free"; 6]].concat());
        assert_eq!(drawn[0].1, "0.00");
        assert_eq!(drawn[7], ("free", "88.72".to_owned(), "11.28".to_owned()));
        assert_eq!(describe_counts(counts), "2 in use, 6 free");
    }

    #[test]
    fn narrow_segment_stays_visible_and_inside_the_bar() {
        let counts =
            DeviceCounts { total: 10_000, free: 9_999, unknown: 1, ..DeviceCounts::default() };
        let drawn = drawn(counts);
        assert_eq!(drawn[0].0, "free");
        assert_eq!(drawn[1], ("unknown", "99.40".to_owned(), "0.60".to_owned()));
    }

    #[test]
    fn no_device_is_no_segment() {
        assert!(drawn(DeviceCounts::default()).is_empty());
        assert_eq!(describe_counts(DeviceCounts::default()), "no device");
    }
}
