//! The eight digits that a person carries from one machine to another. They are a secret for five
//! minutes, so only [`JoinCode::text`] shows them.

use std::{fmt, str::FromStr};

use ring::rand::{SecureRandom, SystemRandom};

use super::InviteError;

/// Digits of a code.
const N_DIGITS: usize = 8;

/// A code for joining. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinCode([u8; N_DIGITS]);

impl JoinCode {
    /// A code at random, all equally likely.
    ///
    /// # Errors
    /// [`InviteError::NoRandom`].
    pub fn random() -> Result<Self, InviteError> {
        let random = SystemRandom::new();
        let mut digits = [0; N_DIGITS];
        for digit in &mut digits {
            *digit = loop {
                let mut byte = [0];
                random.fill(&mut byte).map_err(|_| InviteError::NoRandom)?;
                // 250 is a multiple of 10.
                if byte[0] < 250 {
                    break b'0' + byte[0] % 10;
                }
            };
        }
        Ok(Self(digits))
    }

    /// Whether a text is meant as a code, and not as a token: digits, hyphens and spaces.
    pub fn is_meant_by(text: &str) -> bool {
        let is_part = |c: char| c.is_ascii_digit() || c == '-' || c == ' ';
        text.chars().all(is_part) && text.contains(|c: char| c.is_ascii_digit())
    }

    /// The digits, with a hyphen in the middle.
    pub fn text(&self) -> String {
        let half = |digits: &[u8]| digits.iter().map(|d| char::from(*d)).collect::<String>();
        let (first, second) = self.0.split_at(N_DIGITS / 2);
        format!("{}-{}", half(first), half(second))
    }

    /// The digits alone, as both sides of an exchange know them.
    pub(super) fn digits(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for JoinCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinCode(..)")
    }
}

impl FromStr for JoinCode {
    type Err = InviteError;

    fn from_str(text: &str) -> Result<Self, InviteError> {
        let digits = text.bytes().filter(u8::is_ascii_digit);
        let digits: Vec<u8> = digits.take(N_DIGITS + 1).collect();
        let n = digits.len();
        let digits = digits.try_into().map_err(|_| InviteError::Code(n))?;
        match Self::is_meant_by(text) {
            true => Ok(Self(digits)),
            false => Err(InviteError::Code(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_come_back_however_they_are_typed() {
        let code: JoinCode = "4821-0937".parse().unwrap();
        assert_eq!(code.text(), "4821-0937");
        for text in ["48210937", " 4821 0937 ", "48-21-09-37"] {
            assert_eq!(text.parse::<JoinCode>().unwrap(), code, "{text}");
            assert!(JoinCode::is_meant_by(text));
        }
        assert_eq!(format!("{code:?}"), "JoinCode(..)");
        let random = JoinCode::random().unwrap();
        assert_eq!(random.text().parse::<JoinCode>().unwrap(), random);
    }

    #[test]
    fn other_texts_are_no_codes() {
        for text in ["", "-", "1234-567", "1234-56789", "1234-567a", "x12345678"] {
            assert!(text.parse::<JoinCode>().is_err(), "{text}");
        }
        for text in ["atta1-QJ4K", "", "pi1", "1234x"] {
            assert!(!JoinCode::is_meant_by(text), "{text}");
        }
    }
}
