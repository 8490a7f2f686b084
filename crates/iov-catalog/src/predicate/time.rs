//! Timestamps as text: RFC 3339, exact to the nanosecond, without a clock or a time zone database.

use std::fmt;

const DAY: i128 = 86_400;
const SECOND: i128 = 1_000_000_000;

/// Whether a text begins as a date does, so that the lexer does not take `2026-…` for a number.
pub(crate) fn begins(text: &str) -> bool {
    let b = text.as_bytes();
    b.len() >= 5 && b[..4].iter().all(u8::is_ascii_digit) && b[4] == b'-'
}

/// Reads a timestamp at the beginning of `text`: nanoseconds since 1970 and the bytes it took. A date alone is midnight
/// UTC. The message says what is wrong.
pub(crate) fn parse(text: &str) -> Result<(i64, usize), String> {
    let mut p = Reader { bytes: text.as_bytes(), at: 0 };
    let year = p.digits(4, "a year of four digits")?;
    p.mark(b'-', "'-' after the year")?;
    let month = p.number(2, 1, 12, "a month from 01 to 12")?;
    p.mark(b'-', "'-' after the month")?;
    let day = p.number(2, 1, days_in(year, month), "a day that the month has")?;
    let mut seconds = days_from_civil(year, month, day) * DAY;
    let mut nanoseconds = 0;
    if p.take(b'T') || p.take(b't') {
        let hour = p.number(2, 0, 23, "an hour from 00 to 23")?;
        p.mark(b':', "':' after the hour")?;
        let minute = p.number(2, 0, 59, "a minute from 00 to 59")?;
        p.mark(b':', "':' after the minute")?;
        let second = p.number(2, 0, 59, "a second from 00 to 59")?;
        if p.take(b'.') {
            nanoseconds = p.fraction()?;
        }
        let offset = if p.take(b'Z') || p.take(b'z') {
            0
        } else {
            let west = p.take(b'-');
            if !west {
                p.mark(b'+', "'Z' or an offset such as '+02:00'")?;
            }
            let hours = p.number(2, 0, 23, "the offset's hours from 00 to 23")?;
            p.mark(b':', "':' in the offset")?;
            let minutes = p.number(2, 0, 59, "the offset's minutes from 00 to 59")?;
            (hours * 60 + minutes) * if west { -60 } else { 60 }
        };
        seconds += hour * 3600 + minute * 60 + second - offset;
    }
    match i64::try_from(seconds * SECOND + nanoseconds) {
        Ok(ns) => Ok((ns, p.at)),
        Err(_) => Err("is outside of what nanoseconds since 1970 can tell (1677-09-21 to 2262-04-11)".to_owned()),
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take(&mut self, mark: u8) -> bool {
        let found = self.bytes.get(self.at) == Some(&mark);
        self.at += usize::from(found);
        found
    }

    fn mark(&mut self, mark: u8, what: &str) -> Result<(), String> {
        if self.take(mark) { Ok(()) } else { Err(format!("needs {what}")) }
    }

    fn digits(&mut self, count: usize, what: &str) -> Result<i128, String> {
        let digits = self.bytes.get(self.at..self.at + count).filter(|d| d.iter().all(u8::is_ascii_digit));
        let digits = digits.ok_or_else(|| format!("needs {what}"))?;
        self.at += count;
        Ok(digits.iter().fold(0, |n, d| n * 10 + i128::from(d - b'0')))
    }

    fn number(&mut self, count: usize, min: i128, max: i128, what: &str) -> Result<i128, String> {
        let n = self.digits(count, what)?;
        if (min..=max).contains(&n) { Ok(n) } else { Err(format!("needs {what}")) }
    }

    fn fraction(&mut self) -> Result<i128, String> {
        let digits = self.bytes[self.at..].iter().take_while(|b| b.is_ascii_digit()).count();
        if !(1..=9).contains(&digits) {
            return Err("needs 1 to 9 digits after the point".to_owned());
        }
        let n = self.digits(digits, "digits")?;
        Ok((digits..9).fold(n, |n, _| n * 10))
    }
}

fn is_leap(year: i128) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i128, month: i128) -> i128 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days from 1970-01-01 in the proleptic Gregorian calendar. Years begin in March here, so that the leap day is last.
fn days_from_civil(year: i128, month: i128, day: i128) -> i128 {
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468
}

/// The inverse of [`days_from_civil`].
fn civil_from_days(days: i128) -> (i128, i128, i128) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let in_era = days.rem_euclid(146_097);
    let year_of_era = (in_era - in_era / 1_460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (year_of_era * 365 + year_of_era / 4 - year_of_era / 100);
    let month = (in_year * 5 + 2) / 153;
    let day = in_year - (month * 153 + 2) / 5 + 1;
    let year = year_of_era + era * 400;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}

/// Writes nanoseconds since 1970 as RFC 3339 in UTC, with as many digits of the fraction as it takes.
pub(crate) fn format(f: &mut fmt::Formatter<'_>, ns: i64) -> fmt::Result {
    let (seconds, fraction) = (i128::from(ns).div_euclid(SECOND), i128::from(ns).rem_euclid(SECOND));
    let (year, month, day) = civil_from_days(seconds.div_euclid(DAY));
    let of_day = seconds.rem_euclid(DAY);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
    if fraction != 0 {
        let digits = format!("{fraction:09}");
        write!(f, ".{}", digits.trim_end_matches('0'))?;
    }
    f.write_str("Z")
}
