//! Kubernetes quantities of extended resources, which are whole numbers. The API
//! server writes them in its short form: 2000 is `2k`.

/// Why a quantity is not a number of units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text is not a quantity.
    #[error("not a quantity")]
    Malformed,
    #[error("negative")]
    Negative,
    /// The quantity has a fractional part.
    #[error("not a whole number")]
    Fractional,
    /// The quantity is larger than the API server can represent.
    #[error("too large")]
    TooLarge,
}

/// The longest quantity that is read, in bytes.
const MAX_LENGTH: usize = 64;

/// The number of units that a quantity represents.
///
/// # Errors
/// The quantity is not a whole number from 0 to 2⁶³ − 1.
pub fn units(text: &str) -> Result<u64, QuantityError> {
    if text.len() > MAX_LENGTH {
        return Err(QuantityError::Malformed);
    }
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, suffix) = unsigned.split_at(end.unwrap_or(unsigned.len()));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || fraction.contains('.') {
        return Err(QuantityError::Malformed);
    }
    let (twos, tens) = multiplier(suffix).ok_or(QuantityError::Malformed)?;
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return Ok(0);
    }
    if negative {
        return Err(QuantityError::Negative);
    }
    let places = i32::try_from(fraction.len()).map_err(|_| QuantityError::Malformed)?;
    let value = scaled(significant, twos, tens - places)?;
    i64::try_from(value).map_err(|_| QuantityError::TooLarge)?;
    u64::try_from(value).map_err(|_| QuantityError::TooLarge)
}

/// `digits` × 2^`twos` × 10^`tens`.
fn scaled(digits: &str, twos: u32, tens: i32) -> Result<u128, QuantityError> {
    // Trailing zeros are powers of ten, so that no long number overflows on the way.
    let kept = digits.trim_end_matches('0');
    let zeros = i32::try_from(digits.len() - kept.len()).map_err(|_| QuantityError::TooLarge)?;
    let tens = tens + zeros;
    let number: u128 = kept.parse().map_err(|_| too_precise(tens))?;
    let number = number
        .checked_mul(1 << twos)
        .ok_or_else(|| too_precise(tens))?;
    let power = 10_u128.checked_pow(tens.unsigned_abs());
    match (tens < 0, power) {
        (false, Some(power)) => number.checked_mul(power).ok_or(QuantityError::TooLarge),
        (false, None) => Err(QuantityError::TooLarge),
        (true, Some(power)) if number % power == 0 => Ok(number / power),
        (true, _) => Err(QuantityError::Fractional),
    }
}

/// The maximum number of digits after the point, and before it.
fn too_precise(tens: i32) -> QuantityError {
    match tens < 0 {
        true => QuantityError::Fractional,
        false => QuantityError::TooLarge,
    }
}

/// The powers of two and of ten that a suffix represents.
fn multiplier(suffix: &str) -> Option<(u32, i32)> {
    const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    if let Some(at) = BINARY.iter().position(|name| *name == suffix) {
        return Some((10 * (u32::try_from(at).ok()? + 1), 0));
    }
    if let Some(at) = DECIMAL.iter().position(|name| *name == suffix) {
        return Some((0, 3 * (i32::try_from(at).ok()? - 3)));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    (exponent.abs() <= 64).then_some((0, exponent))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantities_are_read_as_the_api_server_writes_them() {
        for (text, wanted) in [
            ("0", Ok(0)),
            ("8", Ok(8)),
            ("+8", Ok(8)),
            ("2k", Ok(2000)),
            ("1500m", Err(QuantityError::Fractional)),
            ("2000m", Ok(2)),
            ("1.5k", Ok(1500)),
            ("2.0", Ok(2)),
            ("0.5", Err(QuantityError::Fractional)),
            (".5", Err(QuantityError::Fractional)),
            ("1Ki", Ok(1024)),
            ("0.5Ki", Ok(512)),
            ("1e3", Ok(1000)),
            ("5e-1", Err(QuantityError::Fractional)),
            ("1000000u", Ok(1)),
            ("-1", Err(QuantityError::Negative)),
            ("-0", Ok(0)),
            ("9E", Ok(9_000_000_000_000_000_000)),
            ("10E", Err(QuantityError::TooLarge)),
            ("8Ei", Err(QuantityError::TooLarge)),
            ("1e64", Err(QuantityError::TooLarge)),
            ("1e-64", Err(QuantityError::Fractional)),
            ("0e64", Ok(0)),
            ("", Err(QuantityError::Malformed)),
            (".", Err(QuantityError::Malformed)),
            ("-", Err(QuantityError::Malformed)),
            ("1.2.3", Err(QuantityError::Malformed)),
            ("1 ", Err(QuantityError::Malformed)),
            ("1K", Err(QuantityError::Malformed)),
            ("1e", Err(QuantityError::Malformed)),
            ("1e999999999999", Err(QuantityError::Malformed)),
            ("ä", Err(QuantityError::Malformed)),
            (
                "99999999999999999999999999999999999999999",
                Err(QuantityError::TooLarge),
            ),
        ] {
            assert_eq!(units(text), wanted, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_number_is_itself_in_every_form(number in 0..=i64::MAX.unsigned_abs() / 1000) {
            prop_assert_eq!(units(&number.to_string()), Ok(number));
            prop_assert_eq!(units(&format!("{number}000m")), Ok(number));
            prop_assert_eq!(units(&format!("{number}k")), Ok(number * 1000));
        }

        #[test]
        fn no_text_stops_the_reader(text in ".{0,80}") {
            let _ = units(&text);
        }
    }
}
