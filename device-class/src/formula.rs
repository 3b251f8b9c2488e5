//! Evaluates formulas with integers in class files. A class file needs one if the driver computes
//! the number of a device node from the address of the hardware.

use std::iter::Peekable;
use std::str::Chars;

/// The reason why a formula of a class file has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FormulaError {
    /// The text is not made of numbers, `+`, `-`, `*`, `/` and parentheses, or is nested too deep.
    #[error("is not a formula of whole numbers, + - * / and parentheses")]
    Syntax,
    /// The value is negative or too large, or the formula divides by zero.
    #[error("has no value from 0 to 2^64-1")]
    Range,
}

/// The maximum depth of nested parentheses, which bounds the recursion of the parser.
const MAX_DEPTH: usize = 16;

/// Computes the value of a formula such as `(116 - 100) / 16`. Numbers are decimal, or hexadecimal
/// if they begin with `0x`. A division rounds down.
pub(crate) fn evaluate(text: &str) -> Result<u64, FormulaError> {
    let mut parser = Parser {
        chars: text.chars().peekable(),
        depth: 0,
    };
    let value = parser.parse_sum()?;
    match parser.peek_char() {
        None => value.ok_or(FormulaError::Range),
        Some(_) => Err(FormulaError::Syntax),
    }
}

struct Parser<'a> {
    chars: Peekable<Chars<'a>>,
    depth: usize,
}

/// The value of an expression, or `None` if the value is out of range. `None` is not an error here,
/// so that the rest of the formula is still parsed and a syntax error is found.
type ParsedValue = Result<Option<u64>, FormulaError>;

impl Parser<'_> {
    fn parse_sum(&mut self) -> ParsedValue {
        let mut value = self.parse_product()?;
        while let Some(sign @ ('+' | '-')) = self.peek_char() {
            self.chars.next();
            let (left, right) = (value, self.parse_product()?);
            value = left.zip(right).and_then(|(left, right)| match sign {
                '+' => left.checked_add(right),
                _ => left.checked_sub(right),
            });
        }
        Ok(value)
    }

    fn parse_product(&mut self) -> ParsedValue {
        let mut value = self.parse_operand()?;
        while let Some(sign @ ('*' | '/')) = self.peek_char() {
            self.chars.next();
            let (left, right) = (value, self.parse_operand()?);
            value = left.zip(right).and_then(|(left, right)| match sign {
                '*' => left.checked_mul(right),
                _ => left.checked_div(right),
            });
        }
        Ok(value)
    }

    fn parse_operand(&mut self) -> ParsedValue {
        if self.peek_char() != Some('(') {
            return self.parse_number();
        }
        self.chars.next();
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(FormulaError::Syntax);
        }
        let value = self.parse_sum()?;
        self.depth -= 1;
        match (self.peek_char(), self.chars.next()) {
            (Some(')'), Some(_)) => Ok(value),
            _ => Err(FormulaError::Syntax),
        }
    }

    fn parse_number(&mut self) -> ParsedValue {
        let mut digits = String::new();
        while let Some(c) = self.chars.next_if(char::is_ascii_alphanumeric) {
            digits.push(c);
        }
        let (digits, radix) = match digits.strip_prefix("0x") {
            Some(digits) => (digits, 16),
            None => (digits.as_str(), 10),
        };
        if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
            return Err(FormulaError::Syntax);
        }
        Ok(u64::from_str_radix(digits, radix).ok())
    }

    /// Skips blanks, and returns the next character without consuming it.
    fn peek_char(&mut self) -> Option<char> {
        while self.chars.next_if_eq(&' ').is_some() {}
        self.chars.peek().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formula_is_computed_as_in_arithmetic() {
        for (text, wanted) in [
            ("7", Ok(7)),
            ("(116 - 100) / 16", Ok(1)),
            ("(131-100)/16", Ok(1)),
            ("1 + 2 * 3 - 4", Ok(3)),
            ("0x5e * 256 + 0x0a*8+1", Ok(24_145)),
            ("((2))", Ok(2)),
            ("99 - 100", Err(FormulaError::Range)),
            ("1 / (1 - 1)", Err(FormulaError::Range)),
            ("18446744073709551615 + 1", Err(FormulaError::Range)),
            ("99999999999999999999", Err(FormulaError::Range)),
            ("", Err(FormulaError::Syntax)),
            ("1 2", Err(FormulaError::Syntax)),
            ("1 +", Err(FormulaError::Syntax)),
            ("(1", Err(FormulaError::Syntax)),
            ("1)", Err(FormulaError::Syntax)),
            ("5e", Err(FormulaError::Syntax)),
            ("-1", Err(FormulaError::Syntax)),
        ] {
            assert_eq!(evaluate(text), wanted, "{text}");
        }
        assert_eq!(evaluate(&"(".repeat(1 << 20)), Err(FormulaError::Syntax));
    }
}
