//! Typed access to the metadata of one architecture: `meta.size("block_count")` reads
//! `llama.block_count`.
//!
//! Every number is checked here before anything is computed with it: a hyperparameter from a
//! hostile file must not become a division by zero or an allocation of a terabyte.

use atta_formats::{Metadata, Value};

use crate::{Error, check::MAX_LAYERS};

/// No width, count or length of a real model comes near this.
const MAX_SIZE: u64 = 1 << 24;

/// No model names more layers in a list.
const MAX_LISTED: usize = 16;

/// The metadata of a model of a known architecture.
pub(crate) struct Meta<'a> {
    metadata: &'a Metadata,
    prefix: &'a str,
    /// Whether layers that predict further tokens count as layers.
    with_nextn: bool,
}

impl<'a> Meta<'a> {
    /// Keys will be read as `prefix.key`.
    pub(crate) fn new(metadata: &'a Metadata, prefix: &'a str) -> Self {
        Self {
            metadata,
            prefix,
            with_nextn: false,
        }
    }

    /// The same metadata, where layers that predict further tokens count as layers.
    pub(crate) fn with_nextn(self) -> Self {
        Self {
            with_nextn: true,
            ..self
        }
    }

    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.prefix)
    }

    /// A count or width, at least 1.
    pub(crate) fn size(&self, key: &str) -> Result<usize, Error> {
        self.size_opt(key)?.ok_or_else(|| self.missing(key))
    }

    /// A count or width that may be absent; where it is there it is at least 1.
    pub(crate) fn size_opt(&self, key: &str) -> Result<Option<usize>, Error> {
        let key = self.key(key);
        match self.metadata.u64(&key)? {
            Some(value) if value == 0 || value > MAX_SIZE => Err(Error::OutOfRange {
                key,
                value: value.to_string(),
                expected: "1 to 16777216",
            }),
            value => Ok(value.map(|v| v as usize)),
        }
    }

    /// A count or width of each layer, at least 1: a list, or one number for all.
    pub(crate) fn sizes_opt(&self, key: &str) -> Result<Option<Vec<usize>>, Error> {
        match self.counts_opt(key)? {
            Some(counts) if counts.contains(&0) => {
                Err(self.unsupported(key, format!("{counts:?}")))
            }
            counts => Ok(counts),
        }
    }

    /// A count of each layer, which may be 0 in a list: a list, or one number for all.
    pub(crate) fn counts_opt(&self, key: &str) -> Result<Option<Vec<usize>>, Error> {
        let n_layers = self.n_layers()?;
        if !matches!(self.metadata.get(&self.key(key)), Some(Value::Array(_))) {
            let size = self.size_opt(key)?;
            return Ok(size.map(|size| vec![size; n_layers]));
        }
        let list = self.metadata.u32s(&self.key(key))?;
        let list = list.iter().flat_map(|list| list.iter()).take(n_layers);
        let list: Vec<usize> = list.map(|n| n as usize).collect();
        let fits = list.iter().all(|&n| n <= MAX_SIZE as usize);
        match list.len() == n_layers && fits {
            true => Ok(Some(list)),
            false => Err(self.unsupported(key, format!("{list:?}"))),
        }
    }

    /// Layers that a list names, at most 16.
    pub(crate) fn layer_list(&self, key: &str) -> Result<Vec<usize>, Error> {
        let list = self.metadata.i32s(&self.key(key))?;
        let list = list.ok_or_else(|| self.missing(key))?;
        let layers: Vec<usize> = list
            .iter()
            .take(MAX_LISTED + 1)
            .filter_map(|l| usize::try_from(l).ok())
            .collect();
        match layers.len() == list.len() && (1..=MAX_LISTED).contains(&layers.len()) {
            true => Ok(layers),
            false => Err(self.unsupported(key, format!("{layers:?} of {} layers", list.len()))),
        }
    }

    /// The number of layers, without those that predict further tokens.
    pub(crate) fn n_layers(&self) -> Result<usize, Error> {
        let n = self.size("block_count")?;
        let n_nextn = self.n_nextn_layers()?;
        if n > MAX_LAYERS || n_nextn >= n {
            return Err(self.unsupported("block_count", n));
        }
        Ok(if self.with_nextn { n } else { n - n_nextn })
    }

    /// The number of layers behind the last one that predict further tokens from its result
    /// (multi-token prediction).
    pub(crate) fn n_nextn_layers(&self) -> Result<usize, Error> {
        Ok(self.count("nextn_predict_layers")?.min(MAX_SIZE) as usize)
    }

    /// A count that is 0 where it is absent.
    pub(crate) fn count(&self, key: &str) -> Result<u64, Error> {
        Ok(self.metadata.u64(&self.key(key))?.unwrap_or(0))
    }

    /// A finite number that may be absent.
    pub(crate) fn number_opt(&self, key: &str) -> Result<Option<f32>, Error> {
        let key = self.key(key);
        match self.metadata.f32(&key)? {
            Some(value) if !value.is_finite() => Err(Error::OutOfRange {
                key,
                value: value.to_string(),
                expected: "a finite number",
            }),
            value => Ok(value),
        }
    }

    /// A number above zero that may be absent.
    pub(crate) fn positive_opt(&self, key: &str) -> Result<Option<f32>, Error> {
        match self.number_opt(key)? {
            Some(value) if value <= 0.0 => Err(Error::OutOfRange {
                key: self.key(key),
                value: value.to_string(),
                expected: "a number above 0",
            }),
            value => Ok(value),
        }
    }

    /// A number above zero.
    pub(crate) fn positive(&self, key: &str) -> Result<f32, Error> {
        self.positive_opt(key)?.ok_or_else(|| self.missing(key))
    }

    /// A finite number of each layer, of a key without the prefix: a list, or one number for all.
    pub(crate) fn global_numbers(&self, key: &str) -> Result<Vec<f32>, Error> {
        let n_layers = self.n_layers()?;
        let missing = || Error::MissingKey(key.to_owned());
        let numbers: Vec<f32> = match self.metadata.get(key) {
            Some(Value::Array(_)) => {
                let list = self.metadata.f32s(key)?.ok_or_else(missing)?;
                list.iter().take(n_layers).collect()
            }
            _ => vec![self.metadata.f32(key)?.ok_or_else(missing)?; n_layers],
        };
        match numbers.len() == n_layers && numbers.iter().all(|x| x.is_finite()) {
            true => Ok(numbers),
            false => Err(Error::Unsupported {
                key: key.to_owned(),
                value: format!("{numbers:?}"),
            }),
        }
    }

    /// A number of each layer, which need not be finite.
    pub(crate) fn layer_numbers(&self, key: &str) -> Result<Vec<f32>, Error> {
        let list = self.metadata.f32s(&self.key(key))?;
        let list = list.ok_or_else(|| self.missing(key))?;
        match list.len() == self.n_layers()? {
            true => Ok(list.iter().collect()),
            false => Err(self.unsupported(key, format!("a list of {}", list.len()))),
        }
    }

    /// Whether pairs of elements are rotated by different positions (in time, height and width),
    /// which are the same for text.
    pub(crate) fn has_rope_sections(&self) -> Result<bool, Error> {
        let sections = self.metadata.u32s(&self.key("rope.dimension_sections"))?;
        Ok(sections.is_some_and(|list| list.iter().take(2).all(|n| n > 0)))
    }

    /// A bound above zero, `default` where the file says nothing; 0 means that there is none.
    pub(crate) fn cap_opt(&self, key: &str, default: Option<f32>) -> Result<Option<f32>, Error> {
        match self.number_opt(key)? {
            Some(0.0) => Ok(None),
            _ => Ok(self.positive_opt(key)?.or(default)),
        }
    }

    /// Which layers look back through a window: by a list of them, or all but every `n`th, where
    /// `default` is `n` for files that say nothing.
    pub(crate) fn window_pattern(&self, default: usize) -> Result<Vec<bool>, Error> {
        let key = "attention.sliding_window_pattern";
        let n_layers = self.n_layers()?;
        let Some(value) = self.metadata.get(&self.key(key)) else {
            return Ok((1..=n_layers).map(|l| l % default != 0).collect());
        };
        if !matches!(value, Value::Array(_)) {
            let n = self.size(key)?;
            return Ok((1..=n_layers).map(|l| l % n != 0).collect());
        }
        self.flags_opt(key)?
            .ok_or_else(|| self.unsupported(key, value))
    }

    /// A truth of each layer, in a list that may be absent.
    pub(crate) fn flags_opt(&self, key: &str) -> Result<Option<Vec<bool>>, Error> {
        let Some(list) = self.metadata.bools(&self.key(key))? else {
            return Ok(None);
        };
        match list.len() == self.n_layers()? {
            true => Ok(Some(list.iter().collect())),
            false => Err(self.unsupported(key, format!("a list of {}", list.len()))),
        }
    }

    /// Which layers have a recurrent state: by a list of them, or all but every nth, where
    /// `default` is n for files that say nothing.
    pub(crate) fn recurrent_layers(&self, default: usize) -> Result<Vec<bool>, Error> {
        let n_layers = self.n_layers()?;
        let key = "attention.recurrent_layers";
        let n = self.size_opt("full_attention_interval")?.unwrap_or(default);
        if let Some(list) = self.metadata.bools(&self.key(key))? {
            // The list includes layers of multi-token prediction.
            let list: Vec<bool> = list.iter().take(n_layers).collect();
            return match list.len() == n_layers {
                true => Ok(list),
                false => Err(self.unsupported(key, list.len())),
            };
        }
        // Layers of multi-token prediction have attention.
        let n_before = self
            .size("block_count")?
            .saturating_sub(self.n_nextn_layers()?);
        Ok((1..=n_layers)
            .map(|l| l % n != 0 && l <= n_before)
            .collect())
    }

    /// Key-value heads of each layer: one number for all, or a list, where 0 means that the layer
    /// has no attention; such layers get the number of another.
    pub(crate) fn n_kv_heads(&self) -> Result<Option<Vec<usize>>, Error> {
        let key = "attention.head_count_kv";
        let Some(mut heads) = self.counts_opt(key)? else {
            return Ok(None);
        };
        let some = heads.iter().copied().find(|&n| n > 0);
        let some = some.ok_or_else(|| self.unsupported(key, format!("{heads:?}")))?;
        heads
            .iter_mut()
            .filter(|n| **n == 0)
            .for_each(|n| *n = some);
        Ok(Some(heads))
    }

    /// Which layers have attention: those with key-value heads.
    pub(crate) fn attention_layers(&self) -> Result<Vec<bool>, Error> {
        let heads = self.counts_opt("attention.head_count_kv")?;
        let all = || self.n_layers().map(|n| vec![true; n]);
        heads.map_or_else(all, |heads| Ok(heads.iter().map(|&n| n > 0).collect()))
    }

    /// Whole numbers, a list of `n`.
    pub(crate) fn integers(&self, key: &str, n: usize) -> Result<Vec<u64>, Error> {
        let list = self.metadata.u64s(&self.key(key))?;
        let list = list.ok_or_else(|| self.missing(key))?;
        match list.len() == n {
            true => Ok(list.iter().collect()),
            false => Err(self.unsupported(key, format!("a list of {}", list.len()))),
        }
    }

    /// The number of a token that may be absent.
    pub(crate) fn token_opt(&self, key: &str) -> Result<Option<u32>, Error> {
        Ok(self.metadata.u32(&self.key(key))?)
    }

    /// The only layer of a list that may be absent or empty.
    pub(crate) fn only_layer_opt(&self, key: &str) -> Result<Option<usize>, Error> {
        let Some(list) = self.metadata.u32s(&self.key(key))? else {
            return Ok(None);
        };
        let n_layers = self.n_layers()?;
        match (list.len(), list.iter().next()) {
            (_, None) => Ok(None),
            (1, Some(l)) if (l as usize) < n_layers => Ok(Some(l as usize)),
            (n, Some(l)) => Err(self.unsupported(key, format!("{n} layers from {l} on"))),
        }
    }

    /// A truth that may be absent.
    pub(crate) fn flag_opt(&self, key: &str) -> Result<Option<bool>, Error> {
        Ok(self.metadata.bool(&self.key(key))?)
    }

    /// A text that may be absent.
    pub(crate) fn text_opt(&self, key: &str) -> Result<Option<&'a str>, Error> {
        Ok(self.metadata.str(&self.key(key))?)
    }

    /// The number of tokens: of the tokenizer's list, else of the key `vocab_size`.
    pub(crate) fn n_vocab(&self) -> Result<usize, Error> {
        match self.metadata.strs("tokenizer.ggml.tokens")? {
            Some(tokens) if !tokens.is_empty() => Ok(tokens.len()),
            _ => self.size("vocab_size"),
        }
    }

    /// The number of types of tokens; 0 where the file says nothing.
    pub(crate) fn n_token_types(&self) -> Result<usize, Error> {
        let key = "tokenizer.ggml.token_type_count";
        match self.metadata.u64(key)?.unwrap_or(0) {
            n if n > MAX_SIZE => Err(Error::OutOfRange {
                key: key.to_owned(),
                value: n.to_string(),
                expected: "0 to 16777216",
            }),
            n => Ok(n as usize),
        }
    }

    /// The number of entries of a list of texts that may be absent.
    pub(crate) fn list_len_opt(&self, key: &str) -> Result<Option<usize>, Error> {
        let list = self.metadata.strs(&self.key(key))?;
        Ok(list.map(|list| list.len()))
    }

    /// A key that every model of this architecture has.
    pub(crate) fn missing(&self, key: &str) -> Error {
        Error::MissingKey(self.key(key))
    }

    /// Refuses a model that needs something we do not have.
    pub(crate) fn unsupported(&self, key: &str, value: impl ToString) -> Error {
        Error::Unsupported {
            key: self.key(key),
            value: value.to_string(),
        }
    }
}
