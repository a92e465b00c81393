//! Units of length, mass, volume, time and temperature.

/// Each unit: its kind (length, mass, volume, time), and its size in the first unit of the kind.
const UNITS: [(&str, char, f64); 23] = [
    ("meters", 'l', 1.0),
    ("kilometers", 'l', 1000.0),
    ("centimeters", 'l', 0.01),
    ("miles", 'l', 1609.344),
    ("yards", 'l', 0.9144),
    ("feet", 'l', 0.3048),
    ("inches", 'l', 0.0254),
    ("grams", 'm', 1.0),
    ("kilograms", 'm', 1000.0),
    ("pounds", 'm', 453.592_37),
    ("ounces", 'm', 28.349_523_125),
    ("milliliters", 'v', 1.0),
    ("liters", 'v', 1000.0),
    ("gallons", 'v', 3_785.411_784),
    ("pints", 'v', 473.176_473),
    ("cups", 'v', 236.588_236_5),
    ("tablespoons", 'v', 14.786_764_781_25),
    ("teaspoons", 'v', 4.928_921_593_75),
    ("seconds", 't', 1.0),
    ("minutes", 't', 60.0),
    ("hours", 't', 3600.0),
    ("days", 't', 86_400.0),
    ("weeks", 't', 604_800.0),
];

/// Converts a quantity; `None` between units of different kinds.
pub(super) fn convert(value: f64, from: &str, to: &str) -> Option<f64> {
    match (from, to) {
        ("celsius", "fahrenheit") => return Some(value * 9.0 / 5.0 + 32.0),
        ("fahrenheit", "celsius") => return Some((value - 32.0) * 5.0 / 9.0),
        _ => {}
    }
    let unit = |wanted: &str| UNITS.iter().find(|(name, ..)| *name == wanted);
    let (_, from_kind, from) = unit(from)?;
    let (_, to_kind, to) = unit(to)?;
    (from_kind == to_kind).then(|| value * from / to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_units_of_a_kind_are_converted() {
        assert_eq!(convert(2.0, "hours", "minutes"), Some(120.0));
        assert_eq!(convert(100.0, "celsius", "fahrenheit"), Some(212.0));
        assert_eq!(convert(1.0, "hours", "miles"), None);
        assert_eq!(convert(1.0, "parsecs", "miles"), None);
    }
}
