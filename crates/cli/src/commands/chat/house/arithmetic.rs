//! Arithmetic of the tool `calculate`: + - * / and brackets.

/// The deepest nesting of brackets and signs.
const MAX_DEPTH: usize = 64;

/// The value of an expression.
pub(super) fn value(expression: &str) -> Result<f64, &'static str> {
    let mut reader = Reader {
        rest: expression.trim_start(),
        depth: 0,
    };
    let value = reader.sum()?;
    if reader.rest.is_empty() && value.is_finite() {
        Ok(value)
    } else {
        Err(NONE)
    }
}

const NONE: &str = "that is no arithmetic";

struct Reader<'a> {
    rest: &'a str,
    depth: usize,
}

impl Reader<'_> {
    /// Takes a sign, if one of these is next.
    fn sign(&mut self, signs: &[char]) -> Option<char> {
        let sign = self.rest.chars().next().filter(|c| signs.contains(c))?;
        self.rest = self.rest[sign.len_utf8()..].trim_start();
        Some(sign)
    }

    fn sum(&mut self) -> Result<f64, &'static str> {
        let mut value = self.product()?;
        while let Some(sign) = self.sign(&['+', '-']) {
            let right = self.product()?;
            value = if sign == '+' {
                value + right
            } else {
                value - right
            };
        }
        Ok(value)
    }

    fn product(&mut self) -> Result<f64, &'static str> {
        let mut value = self.factor()?;
        while let Some(sign) = self.sign(&['*', '/']) {
            let right = self.factor()?;
            value = match sign {
                '*' => value * right,
                _ if right == 0.0 => return Err("division by zero"),
                _ => value / right,
            };
        }
        Ok(value)
    }

    fn factor(&mut self) -> Result<f64, &'static str> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(NONE);
        }
        let value = match self.sign(&['-', '(']) {
            Some('-') => -self.factor()?,
            Some(_) => {
                let value = self.sum()?;
                self.sign(&[')']).ok_or(NONE)?;
                value
            }
            None => self.number()?,
        };
        self.depth -= 1;
        Ok(value)
    }

    fn number(&mut self) -> Result<f64, &'static str> {
        let is_part = |c: char| c.is_ascii_digit() || c == '.';
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        number.parse().map_err(|_| NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_come_before_sums_and_brackets_before_both() {
        assert_eq!(value("1 + 2 * 3 - 4 / 8"), Ok(6.5));
        assert_eq!(value("-(1 + 2) * -3"), Ok(9.0));
        assert_eq!(value("1 / 0"), Err("division by zero"));
        for bad in [
            "",
            "1 +",
            "(1",
            "1)",
            "a",
            "1.2.3",
            &"(".repeat(100_000),
            "2 ** 3",
        ] {
            assert_eq!(value(bad), Err(NONE), "{bad}");
        }
    }
}
