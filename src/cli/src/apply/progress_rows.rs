//! Rows of devices that are being changed: a bar, the steps, the elapsed time and an estimate of the rest.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::settings::Charset;
use crate::text::{count_noun, printable, shorten};

/// Columns of a bar.
const BAR_WIDTH: usize = 12;
/// Part of a row that the name of a device may fill.
const NAME_PART: usize = 3;
/// Maximum number of rows. A node has up to sixteen devices, and a screen must not scroll.
const MAX_ROWS: usize = 16;

/// A device that is being changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DeviceProgress {
    pub(super) name: String,
    pub(super) step: String,
    pub(super) done: usize,
    pub(super) steps: usize,
}

/// Times at which the changes of devices began.
#[derive(Debug, Default)]
pub(super) struct ProgressRows {
    /// When each device was first shown, and the number of steps that were done then.
    begun: BTreeMap<String, (Instant, usize)>,
}

impl ProgressRows {
    /// Formats a row of at most `width` characters for each device.
    pub(super) fn rows(
        &mut self,
        devices: &[DeviceProgress],
        now: Instant,
        (width, charset): (usize, Charset),
    ) -> Vec<String> {
        self.begun.retain(|name, _| devices.iter().any(|device| device.name == *name));
        let most = width / NAME_PART;
        let longest = devices.iter().map(|device| device.name.chars().count()).max();
        let name_width = longest.unwrap_or_default().min(most);
        let hidden = devices.len().saturating_sub(MAX_ROWS);
        let mut rows = Vec::new();
        for device in devices.iter().take(MAX_ROWS) {
            let (begun, first) =
                *self.begun.entry(device.name.clone()).or_insert((now, device.done));
            let elapsed = now.saturating_duration_since(begun);
            let row = row(device, name_width, (elapsed, first), charset);
            rows.push(fitted(&row, width));
        }
        if hidden > 0 {
            rows.push(format!("and {}", count_noun(hidden, "more device", "more devices")));
        }
        rows
    }
}

fn row(
    device: &DeviceProgress,
    name_width: usize,
    (elapsed, first): (Duration, usize),
    charset: Charset,
) -> String {
    let DeviceProgress { name, step, done, steps } = device;
    let rest = match remaining(elapsed, done.saturating_sub(first), steps.saturating_sub(*done)) {
        Some(rest) if rest >= Duration::from_secs(1) => format!(", about {} left", clock(rest)),
        Some(_) | None => String::new(),
    };
    let bar = bar(*done, *steps, charset);
    let name = shorten(name, name_width);
    format!("{name:name_width$}  {bar}  {done}/{steps}  {}{rest}: {step}", clock(elapsed))
}

/// Cuts a text to the width of a row.
pub(super) fn fitted(text: &str, width: usize) -> String {
    printable(text).chars().take(width).collect()
}

fn bar(done: usize, steps: usize, charset: Charset) -> String {
    let full = done.saturating_mul(BAR_WIDTH).checked_div(steps).unwrap_or(0).min(BAR_WIDTH);
    let empty = BAR_WIDTH.saturating_sub(full);
    let (begin, filled, open, end) = match charset {
        Charset::Ascii => ("[", "#", "-", "]"),
        Charset::Utf8 => ("", "\u{2588}", "\u{2591}", ""),
    };
    format!("{begin}{}{}{end}", filled.repeat(full), open.repeat(empty))
}

/// Estimates the time of the remaining steps from the mean duration of those that were completed within `elapsed`.
fn remaining(elapsed: Duration, completed: usize, rest: usize) -> Option<Duration> {
    elapsed.checked_div(u32::try_from(completed).ok()?)?.checked_mul(u32::try_from(rest).ok()?)
}

fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, done: usize) -> DeviceProgress {
        DeviceProgress { name: name.to_owned(), step: "create 3g.40gb".to_owned(), done, steps: 4 }
    }

    #[test]
    fn rows_have_bar_elapsed_time_and_estimate() {
        let mut rows = ProgressRows::default();
        let begin = Instant::now();
        let all = [device("GPU 0", 0), device("GPU 10", 1)];
        assert_eq!(
            rows.rows(&all, begin, (79, Charset::Ascii)),
            [
                "GPU 0   [------------]  0/4  0:00: create 3g.40gb",
                "GPU 10  [###---------]  1/4  0:00: create 3g.40gb",
            ]
        );
        let later = begin + Duration::from_secs(70);
        assert_eq!(
            rows.rows(&[device("GPU 0", 2)], later, (79, Charset::Utf8)),
            ["GPU 0  ██████░░░░░░  2/4  1:10, about 1:10 left: create 3g.40gb"]
        );
        // The steps that were done before the first row do not count.
        let latest = later + Duration::from_secs(30);
        let rows_of_attached = rows.rows(&[device("GPU 0", 3)], latest, (79, Charset::Ascii));
        assert!(rows_of_attached[0].contains("about 0:33 left"), "{rows_of_attached:?}");
        // A later change of the same device starts from zero.
        assert!(rows.rows(&[], later, (79, Charset::Ascii)).is_empty());
        let again = rows.rows(&[device("GPU 0", 0)], later, (79, Charset::Ascii));
        assert_eq!(again, ["GPU 0  [------------]  0/4  0:00: create 3g.40gb"]);
    }

    #[test]
    fn rows_fit_the_terminal_and_long_names_keep_both_ends() {
        let name = |number| format!("GPU {} {number}", "x".repeat(70));
        let many: Vec<DeviceProgress> = (10..28).map(|number| device(&name(number), 1)).collect();
        let rows =
            |width| ProgressRows::default().rows(&many, Instant::now(), (width, Charset::Ascii));
        let narrow = rows(60);
        assert_eq!(narrow.len(), 17);
        assert!(narrow.iter().all(|row| row.chars().count() <= 60), "{narrow:#?}");
        assert_eq!(narrow[0], "GPU xxxxxxxx...xx 10  [###---------]  1/4  0:00: create 3g.4");
        assert_eq!(narrow.last().map(String::as_str), Some("and 2 more devices"));
        let wide = rows(300);
        assert!(wide[0].starts_with(&format!("{}  [###", name(10))), "{wide:#?}");
    }
}
