//! The value of `--lora`: a file, and maybe a name and a scale.

use std::path::{Path, PathBuf};

use atta::AdapterFile;

/// `[NAME=]FILE[:SCALE]`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LoraFlag {
    name: Option<String>,
    path: PathBuf,
    scale: Option<f32>,
}

impl LoraFlag {
    /// The adapter to load; `named` is the scale of one that has a name and no scale.
    pub(crate) fn file(&self, named: f32) -> AdapterFile {
        let unsaid = if self.name.is_some() { named } else { 1.0 };
        AdapterFile {
            name: self.name.clone().unwrap_or_default(),
            path: self.path.clone(),
            scale: self.scale.unwrap_or(unsaid),
        }
    }
}

/// Parses the value. A file that exists under the whole text has neither name nor scale.
pub(crate) fn lora(text: &str) -> Result<LoraFlag, String> {
    let flag = match Path::new(text).exists() {
        true => LoraFlag {
            name: None,
            path: PathBuf::from(text),
            scale: None,
        },
        false => parts(text),
    };
    if flag.path.as_os_str().is_empty() {
        return Err("expected FILE, FILE:SCALE or NAME=FILE".to_owned());
    }
    match flag.scale.is_some_and(|scale| !scale.is_finite()) {
        true => Err("expected a finite scale".to_owned()),
        false => Ok(flag),
    }
}

/// Name, file and scale of a text; a colon before anything but a number belongs to the file.
fn parts(text: &str) -> LoraFlag {
    let named = text.split_once('=');
    let named = named.filter(|(name, _)| !name.is_empty() && !name.contains(['/', '\\', '.']));
    let rest = named.map_or(text, |(_, rest)| rest);
    let scaled = rest
        .rsplit_once(':')
        .and_then(|(file, scale)| Some((file, scale.parse::<f32>().ok()?)));
    LoraFlag {
        name: named.map(|(name, _)| name.to_owned()),
        path: scaled.map_or(rest, |(file, _)| file).into(),
        scale: scaled.map(|(_, scale)| scale),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_a_file_with_a_name_and_a_scale_or_without() {
        let parsed = |text: &str| {
            let LoraFlag { name, path, scale } = lora(text).unwrap();
            (name, path.display().to_string(), scale)
        };
        let name = |name: &str| Some(name.to_owned());
        assert_eq!(parsed("a.gguf"), (None, "a.gguf".into(), None));
        assert_eq!(parsed("a.gguf:0.5"), (None, "a.gguf".into(), Some(0.5)));
        assert_eq!(parsed("x=a.gguf"), (name("x"), "a.gguf".into(), None));
        assert_eq!(parsed("x=a:-1"), (name("x"), "a".into(), Some(-1.0)));
        assert_eq!(parsed("C:\\a.gguf"), (None, "C:\\a.gguf".into(), None));
        assert_eq!(parsed("d/e=f.gguf"), (None, "d/e=f.gguf".into(), None));
    }

    #[test]
    fn a_value_without_a_file_or_with_a_scale_that_is_no_number_is_refused() {
        for wrong in ["", ":1", "x=", "a.gguf:inf", "a.gguf:nan"] {
            assert!(lora(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_adapter_is_at_full_scale_unless_it_waits_to_be_named() {
        assert_eq!(lora("a.gguf").unwrap().file(0.0).scale, 1.0);
        assert_eq!(lora("x=a.gguf").unwrap().file(0.0).scale, 0.0);
        assert_eq!(lora("x=a.gguf").unwrap().file(1.0).scale, 1.0);
        assert_eq!(lora("x=a.gguf:0.5").unwrap().file(0.0).scale, 0.5);
    }
}
