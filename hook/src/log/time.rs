//! Formats the time stamps of log messages. No decision of the hook depends on the time.

use nix::time::{ClockId, clock_gettime};

/// Returns the current time in UTC, in the format of RFC 3339.
pub fn format_current_time() -> String {
    format_time_before_now(0)
}

/// Returns the time `seconds_ago` seconds before now, in UTC and in the format of RFC 3339.
pub(super) fn format_time_before_now(seconds_ago: i64) -> String {
    let seconds_since_epoch =
        clock_gettime(ClockId::CLOCK_REALTIME).map_or(0, |time| time.tv_sec());
    format_rfc3339(seconds_since_epoch - seconds_ago)
}

fn format_rfc3339(seconds_since_epoch: i64) -> String {
    let (year, month, day) = to_calendar_date(seconds_since_epoch.div_euclid(86_400));
    let seconds_since_midnight = seconds_since_epoch.rem_euclid(86_400);
    let (hour, minute, second) = (
        seconds_since_midnight / 3600,
        seconds_since_midnight / 60 % 60,
        seconds_since_midnight % 60,
    );
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Converts a number of days after 1970-01-01 to year, month and day of the Gregorian calendar. The
/// calculation uses years that begin in March, so that a leap day is always the last day of a year.
fn to_calendar_date(days_since_1970: i64) -> (i64, i64, i64) {
    const DAYS_BEFORE_1970: i64 = 719_468;
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
            assert_eq!(format_rfc3339(seconds_since_epoch), expected);
        }
    }
}
