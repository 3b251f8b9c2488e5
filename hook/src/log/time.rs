//! Formats the time stamps of log messages. No decision of the hook depends on the time.

use nix::time::{ClockId, clock_gettime};

/// Returns the current time in UTC, in the format of RFC 3339, such as `2026-11-28T09:30:00Z`.
pub fn format_current_time() -> String {
    format_time_before_now(0)
}

/// Returns the time `seconds_ago` seconds before now, in the format of [`format_time`].
pub(super) fn format_time_before_now(seconds_ago: i64) -> String {
    format_time(seconds_since_epoch() - seconds_ago)
}

fn seconds_since_epoch() -> i64 {
    clock_gettime(ClockId::CLOCK_REALTIME).map_or(0, |time| time.tv_sec())
}

/// Describes the age of a log message from its time stamp, such as `3 minutes ago`. Returns `None`
/// if `timestamp` does not have the log's format.
pub fn describe_age(timestamp: &str) -> Option<String> {
    const SECONDS_PER_UNIT: [(&str, i64); 4] = [
        ("day", 86_400),
        ("hour", 3600),
        ("minute", 60),
        ("second", 1),
    ];
    // If the clock was set back since the message was written, the age would be negative.
    let seconds = (seconds_since_epoch() - parse_rfc3339(timestamp)?).max(0);
    let mut units = SECONDS_PER_UNIT.into_iter();
    let (unit, unit_seconds) = units
        .find(|(_, unit_seconds)| seconds >= *unit_seconds)
        .unwrap_or(("second", 1));
    let count = seconds / unit_seconds;
    let plural = if count == 1 { "" } else { "s" };
    Some(format!("{count} {unit}{plural} ago"))
}

/// Parses a time stamp from [`format_time`] to seconds since 1970. Returns `None` if the text has
/// another format.
fn parse_rfc3339(timestamp: &str) -> Option<i64> {
    let number = |range: std::ops::Range<usize>| timestamp.get(range)?.parse::<i64>().ok();
    let days = count_days_before(number(0..4)?, number(5..7)?, number(8..10)?);
    let seconds = days * 86_400 + number(11..13)? * 3600 + number(14..16)? * 60 + number(17..19)?;
    (format_time(seconds) == timestamp).then_some(seconds)
}

/// Returns the number of days from 1970-01-01 to a date of the Gregorian calendar. It is the
/// inverse of [`to_calendar_date`].
fn count_days_before(year: i64, month: i64, day: i64) -> i64 {
    let is_before_march = month <= 2;
    let year_from_march = year - i64::from(is_before_march);
    let month_from_march = if is_before_march {
        month + 9
    } else {
        month - 3
    };
    let leap_days = year_from_march.div_euclid(4) - year_from_march.div_euclid(100)
        + year_from_march.div_euclid(400);
    year_from_march * 365 + leap_days + (153 * month_from_march + 2) / 5 + day
        - 1
        - DAYS_BEFORE_1970
}

/// Formats seconds since 1970 as a time in UTC, such as `2026-11-28T09:30:00Z` (RFC 3339).
pub fn format_time(seconds_since_epoch: i64) -> String {
    let (year, month, day) = to_calendar_date(seconds_since_epoch.div_euclid(86_400));
    let seconds_since_midnight = seconds_since_epoch.rem_euclid(86_400);
    let (hour, minute, second) = (
        seconds_since_midnight / 3600,
        seconds_since_midnight / 60 % 60,
        seconds_since_midnight % 60,
    );
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The number of days from 0000-03-01 to 1970-01-01. The calculation of dates begins at the first
/// of these days.
const DAYS_BEFORE_1970: i64 = 719_468;

/// Converts a number of days after 1970-01-01 to year, month and day of the Gregorian calendar. The
/// calculation uses years that begin in March, so that a leap day is always the last day of a year.
fn to_calendar_date(days_since_1970: i64) -> (i64, i64, i64) {
    const DAYS_OF_400_YEARS: i64 = 146_097;
    let days_since_year_0 = days_since_1970 + DAYS_BEFORE_1970;
    let era = days_since_year_0.div_euclid(DAYS_OF_400_YEARS);
    let day_of_era = days_since_year_0.rem_euclid(DAYS_OF_400_YEARS);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_date_prints_it() {
        for (seconds_since_epoch, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_275_463, "2026-11-21T15:37:43Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(format_time(seconds_since_epoch), expected);
            assert_eq!(parse_rfc3339(expected), Some(seconds_since_epoch));
        }
        for text in [
            "",
            "2026-11-21",
            "2026-02-30T00:00:00Z",
            "2026-11-21 15:37:43",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }

    #[test]
    fn an_age_has_the_greatest_unit() {
        for (seconds_ago, expected) in [
            (-60, "0 seconds ago"),
            (61, "1 minute ago"),
            (2 * 3600 + 60, "2 hours ago"),
            (3 * 86_400 + 60, "3 days ago"),
        ] {
            let timestamp = format_time_before_now(seconds_ago);
            assert_eq!(describe_age(&timestamp).as_deref(), Some(expected));
        }
    }
}
