//! The order of sonames in ld.so.cache, on which the binary search of glibc's loader depends.

use std::cmp::Ordering;
use std::ffi::c_char;
use std::iter;

use super::work;

/// Compares two sonames as glibc's `_dl_cache_libcmp` does. The entries of ld.so.cache are sorted
/// by this comparison, in descending order.
///
/// Consecutive digits are compared as one number, so that `libx.so.10` comes after `libx.so.9`. A
/// number comes after any other character, and after the end of a name. Other characters are
/// compared as C's `char`, which is signed on x86 and unsigned on ARM. Names that are equal in this
/// comparison are the same name for the loader.
///
/// Numbers wrap at 32 bits, as in the loader. The loader compares two numbers by subtraction, which
/// may wrap again, but this function compares them directly. The results differ only for numbers
/// that are more than 2³¹ apart.
pub fn soname_cmp(a: &[u8], b: &[u8]) -> Ordering {
    // The common prefix of both names is skipped, except for digits at its end. These may be the
    // first digits of two different numbers, so they are compared.
    let common_length = iter::zip(a, b).take_while(|(a, b)| a == b).count();
    let digit_count = a[..common_length]
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let start = common_length - digit_count;
    work::add_bytes(common_length + digit_count + 1);
    let (mut a, mut b) = (&a[start..], &b[start..]);
    loop {
        let (token_a, token_b) = (take_token(&mut a), take_token(&mut b));
        if token_a != token_b || (a.is_empty() && b.is_empty()) {
            return token_a.cmp(&token_b);
        }
    }
}

/// Removes the first token from a name. Returns it as a number, so that tokens can be compared. The
/// end of the name is 0, and a character that is not a digit is its code. Consecutive digits are
/// one token: their value plus `NUMBER_OFFSET`, so that it is larger than any code.
fn take_token(name: &mut &[u8]) -> i64 {
    const NUMBER_OFFSET: i64 = 1 << 33;
    let Some((&first_byte, remaining_bytes)) = name.split_first() else {
        return 0;
    };
    if !first_byte.is_ascii_digit() {
        work::add_bytes(1);
        *name = remaining_bytes;
        return (first_byte as c_char).into();
    }
    let (mut number, mut remaining_bytes) = (0_i32, *name);
    while let [digit @ b'0'..=b'9', following_bytes @ ..] = remaining_bytes {
        number = number.wrapping_mul(10).wrapping_add((digit - b'0').into());
        remaining_bytes = following_bytes;
    }
    work::add_bytes(name.len() - remaining_bytes.len());
    *name = remaining_bytes;
    NUMBER_OFFSET + i64::from(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sonames_compare_as_in_the_loader() {
        use Ordering::{Equal, Greater, Less};
        for (a, b, want) in [
            ("", "", Equal),
            ("libx.so.1", "libx.so.1", Equal),
            ("liba.so.1", "libb.so.1", Less),
            // Numbers are compared, and not their digits.
            ("libx.so.9", "libx.so.10", Less),
            ("libx.so.1.2.9", "libx.so.1.2.10", Less),
            ("libx.so.01", "libx.so.1", Equal),
            ("libx1.so", "libx01.so", Equal),
            ("libx12.so", "libx1.so", Greater),
            ("libx-2.9a", "libx-2.10", Less),
            // A digit is after anything else, even after what is greater in ASCII.
            ("libx.so.1", "libx.so.x", Greater),
            ("libx2", "libxz", Greater),
            ("libx", "libx2", Less),
            // A prefix is before its extension.
            ("libx.so", "libx.so.1", Less),
            ("libx", "libx.so", Less),
            // Other characters as in ASCII: '+' < '-' < '.' < 'A' < '_' < 'a'.
            ("libstdc+", "libstdc-", Less),
            ("libX.so", "lib_.so", Less),
            ("lib_.so", "liba.so", Less),
            // 4294967297 is 1 in 32 bits.
            ("libx.so.4294967297", "libx.so.1", Equal),
            ("libx.so.2147483648", "libx.so.1", Less),
            // Date-like versions that still fit.
            ("libx-20240131.so", "libx-20231231.so", Greater),
        ] {
            assert_eq!(soname_cmp(a.as_bytes(), b.as_bytes()), want, "{a} and {b}");
            assert_eq!(
                soname_cmp(b.as_bytes(), a.as_bytes()),
                want.reverse(),
                "{b} and {a}"
            );
        }
    }

    #[test]
    fn bytes_over_127_are_signed_where_char_is() {
        let want = if c_char::MIN == 0 {
            Ordering::Greater
        } else {
            Ordering::Less
        };
        assert_eq!(soname_cmp(b"lib\xc3", b"liba"), want);
        assert_eq!(soname_cmp(b"lib\xc3", b"lib"), want);
    }
}
