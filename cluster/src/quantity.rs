//! Parses Kubernetes quantities of extended resources. The quantities are whole numbers, but the
//! API server may write them with a suffix: 2000 as `2k`.

/// The maximum length of a quantity, in bytes. The API server writes much shorter quantities.
const MAX_QUANTITY_BYTES: usize = 64;

/// Returns the whole number of units that a quantity represents. Returns `None` if the text is not
/// a quantity, or if the quantity is not a whole number from 0 to 2⁶³ − 1.
pub fn parse_units(text: &str) -> Option<u64> {
    if text.len() > MAX_QUANTITY_BYTES {
        return None;
    }
    let (is_negative, unsigned_text) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let number_end = unsigned_text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, suffix) = unsigned_text.split_at(number_end.unwrap_or(unsigned_text.len()));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    let (binary_exponent, suffix_exponent) = parse_suffix(suffix)?;
    if digits.is_empty() || fraction.contains('.') {
        return None;
    }
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    // Trailing zeros are counted as powers of ten instead of being parsed. Thus a number with many
    // zeros and a small suffix, such as 1000…000n, does not overflow.
    let mantissa = significant.trim_end_matches('0');
    let trailing_zeros = i32::try_from(significant.len() - mantissa.len()).ok()?;
    let decimal_exponent = suffix_exponent + trailing_zeros - i32::try_from(fraction.len()).ok()?;
    let scaled_mantissa = mantissa
        .parse::<u128>()
        .ok()?
        .checked_mul(1 << binary_exponent)?;
    let power = 10_u128.checked_pow(decimal_exponent.unsigned_abs())?;
    let value = if decimal_exponent < 0 {
        scaled_mantissa
            .is_multiple_of(power)
            .then(|| scaled_mantissa / power)?
    } else {
        scaled_mantissa.checked_mul(power)?
    };
    u64::try_from(value)
        .ok()
        .filter(|units| !is_negative && i64::try_from(*units).is_ok())
}

/// Parses the suffix of a quantity, which stands for a factor. Returns two exponents: those of the
/// powers of two and of ten in the factor. They are (10, 0) for `Ki` and (0, 3) for `k`. Returns
/// `None` for an unknown suffix.
fn parse_suffix(suffix: &str) -> Option<(u32, i32)> {
    const BINARY_SUFFIXES: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    const DECIMAL_SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    if let Some(index) = BINARY_SUFFIXES.iter().position(|name| *name == suffix) {
        return Some((10 * (u32::try_from(index).ok()? + 1), 0));
    }
    if let Some(index) = DECIMAL_SUFFIXES.iter().position(|name| *name == suffix) {
        return Some((0, 3 * (i32::try_from(index).ok()? - 3)));
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
        for (text, expected) in [
            ("0", Some(0)),
            ("8", Some(8)),
            ("+8", Some(8)),
            ("2k", Some(2000)),
            ("1500m", None),
            ("2000m", Some(2)),
            ("1.5k", Some(1500)),
            ("2.0", Some(2)),
            ("0.5", None),
            (".5", None),
            ("1Ki", Some(1024)),
            ("0.5Ki", Some(512)),
            ("1e3", Some(1000)),
            ("5e-1", None),
            ("1000000u", Some(1)),
            ("-1", None),
            ("-0", Some(0)),
            ("9E", Some(9_000_000_000_000_000_000)),
            ("10E", None),
            ("8Ei", None),
            ("1e64", None),
            ("1e-64", None),
            ("0e64", Some(0)),
            ("", None),
            (".", None),
            ("-", None),
            ("1.2.3", None),
            ("1 ", None),
            ("1K", None),
            ("1e", None),
            ("1e999999999999", None),
            ("ä", None),
            ("99999999999999999999999999999999999999999", None),
        ] {
            assert_eq!(parse_units(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_number_has_the_same_value_with_every_suffix(number in 0..=i64::MAX.unsigned_abs() / 1000) {
            prop_assert_eq!(parse_units(&number.to_string()), Some(number));
            prop_assert_eq!(parse_units(&format!("{number}000m")), Some(number));
            prop_assert_eq!(parse_units(&format!("{number}k")), Some(number * 1000));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in ".{0,80}") {
            let _ = parse_units(&text);
        }
    }
}
