//! How often the experts of a model were used, and its bytes, by which a later run knows it.
//!
//! ```text
//! "ATTAUSE1"  n_layers  { n_experts  uses: f32 × n_experts } × n_layers  crc32c    little-endian
//! ```
//! The bytes come from outside: every count is compared with the bytes that are left before it is
//! believed. It does not know which model they belong to.

const MAGIC: &[u8; 8] = b"ATTAUSE1";

/// More uses than that within a half-life are not believed.
const MAX_USES: f32 = 1e9;

/// The decayed number of uses of each expert, by layer; nothing of layers without experts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExpertUsage {
    /// By layer, then by expert.
    pub layers: Vec<Vec<f32>>,
}

impl ExpertUsage {
    /// Whether no expert was used.
    pub fn is_empty(&self) -> bool {
        self.layers.iter().flatten().all(|&uses| uses == 0.0)
    }

    /// Writes bytes for [`from_bytes`](Self::from_bytes).
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let number = |bytes: &mut Vec<u8>, n: usize| bytes.extend((n as u32).to_le_bytes());
        number(&mut bytes, self.layers.len());
        for uses in &self.layers {
            number(&mut bytes, uses.len());
            bytes.extend(uses.iter().flat_map(|uses| uses.to_le_bytes()));
        }
        let sum = crc32c::crc32c(&bytes);
        bytes.extend(sum.to_le_bytes());
        bytes
    }

    /// Reads such bytes, which may be hostile; `None` if they are no others.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (content, sum) = bytes.split_last_chunk::<4>()?;
        if crc32c::crc32c(content) != u32::from_le_bytes(*sum) {
            return None;
        }
        let mut rest = content.strip_prefix(MAGIC)?;
        let n_layers = number(&mut rest)?;
        // Each layer has a count at least.
        if n_layers > rest.len() / 4 {
            return None;
        }
        let layers: Option<Vec<Vec<f32>>> = (0..n_layers).map(|_| layer(&mut rest)).collect();
        rest.is_empty().then_some(())?;
        Some(Self { layers: layers? })
    }
}

fn number(rest: &mut &[u8]) -> Option<usize> {
    let (head, tail) = rest.split_first_chunk::<4>()?;
    *rest = tail;
    Some(u32::from_le_bytes(*head) as usize)
}

fn layer(rest: &mut &[u8]) -> Option<Vec<f32>> {
    let n_bytes = number(rest)?.checked_mul(4)?;
    let (uses, tail) = rest.split_at_checked(n_bytes)?;
    *rest = tail;
    let (uses, _) = uses.as_chunks::<4>();
    let uses: Vec<f32> = uses
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect();
    let is_right = |uses: &f32| (0.0..MAX_USES).contains(uses);
    uses.iter().all(is_right).then_some(uses)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage() -> ExpertUsage {
        ExpertUsage {
            layers: vec![vec![], vec![0.0, 3.5, 1.0], vec![0.25; 2]],
        }
    }

    #[test]
    fn bytes_come_back_as_they_were() {
        for usage in [usage(), ExpertUsage::default()] {
            assert_eq!(ExpertUsage::from_bytes(&usage.to_bytes()), Some(usage));
        }
        assert!(ExpertUsage::default().is_empty() && !usage().is_empty());
    }

    #[test]
    fn other_bytes_are_refused() {
        let right = usage().to_bytes();
        for n in 0..right.len() {
            assert_eq!(ExpertUsage::from_bytes(&right[..n]), None);
            let mut other = right.clone();
            other[n] ^= 1;
            assert_eq!(ExpertUsage::from_bytes(&other), None);
        }
        let with_sum = |mut bytes: Vec<u8>| {
            bytes.truncate(bytes.len() - 4);
            bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
            ExpertUsage::from_bytes(&bytes)
        };
        let mut many = right.clone();
        many[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        let mut long = right.clone();
        long[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        let mut negative = right;
        negative[23] = 0xbf;
        for bytes in [many, long, negative] {
            assert_eq!(with_sum(bytes), None);
        }
    }
}
