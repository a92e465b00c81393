//! Which sizes of models fit a machine, and how fast they are there: estimates from its rates.
//!
//! Decoding reads every weight once for each token, so that memory or disk sets the speed; prompts
//! are bound by arithmetic. Shapes are those of Qwen3 and, for 70B, Llama 3.

use atta_cluster::wire::message::NodeNumbers;
use serde_json::{Value, json};

use super::machine::Machine;

/// Private memory beside weights and KV cache: the program, the vocabulary, buffers of a step.
const BESIDE_BYTES: f64 = 96e6;
/// The part of the available memory that streamed weights may use (`docs/memory.md`).
const STREAMED_PART: f64 = 0.85;
/// Bytes of keys and values of a layer and position: 8 heads of 128 each, in f16.
const KV_BYTES: f64 = 2.0 * 8.0 * 128.0 * 2.0;
/// Of streamed weights this part must stay in memory for the others to pass through.
const MIN_PINNED: f64 = 0.02;

/// A size of models.
struct Size {
    name: &'static str,
    n_weights: f64,
    n_layers: f64,
}

const SIZES: [Size; 7] = [
    size("0.6B", 0.6e9, 28.0),
    size("1.7B", 1.72e9, 28.0),
    size("4B", 4.02e9, 36.0),
    size("8B", 8.19e9, 36.0),
    size("14B", 14.8e9, 40.0),
    size("32B", 32.8e9, 64.0),
    size("70B", 70.6e9, 80.0),
];

const fn size(name: &'static str, n_weights: f64, n_layers: f64) -> Size {
    Size {
        name,
        n_weights,
        n_layers,
    }
}

/// Types of files, with their bits per weight: of all of a Q4_K_M file, and of T3
/// (`docs/formats.md`).
const FORMATS: [(&str, f64); 2] = [("Q4_K_M", 4.85), ("T3", 3.19)];

/// Where the weights of a model would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// In memory.
    Mapped,
    /// In memory in part, the rest read from disk for each token.
    Streamed,
    /// Not even the KV cache fits.
    TooLarge,
}

impl Placement {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Mapped => "mapped",
            Self::Streamed => "streamed",
            Self::TooLarge => "too large",
        }
    }
}

/// A model on this machine.
pub(super) struct ModelFit {
    pub(super) size: &'static str,
    pub(super) format: &'static str,
    /// Weights, KV cache and all else.
    pub(super) bytes: u64,
    pub(super) how: Placement,
    /// `None` where it does not fit, or the disk was not measured.
    pub(super) decode_tok_s: Option<f64>,
    pub(super) prefill_tok_s: Option<f64>,
}

impl ModelFit {
    pub(super) fn to_json(&self) -> Value {
        json!({
            "size": self.size,
            "type": self.format,
            "bytes": self.bytes,
            "how": self.how.name(),
            "decode_tok_s": self.decode_tok_s,
            "prefill_tok_s": self.prefill_tok_s,
        })
    }
}

/// All sizes in all types on a machine, with this context.
pub(super) fn fits(machine: &Machine, n_ctx: usize) -> Vec<ModelFit> {
    let room = machine.available.unwrap_or(machine.memory_limit) as f64;
    let numbers = machine.rates.numbers();
    let sizes = SIZES.iter();
    sizes
        .flat_map(|size| FORMATS.iter().map(move |format| (size, format)))
        .map(|(size, (format, bits))| {
            let weights = size.n_weights * bits / 8.0;
            let beside = BESIDE_BYTES + size.n_layers * KV_BYTES * n_ctx as f64;
            let how = place(weights, beside, room);
            let pinned = match how {
                Placement::Mapped => weights,
                Placement::Streamed | Placement::TooLarge => room * STREAMED_PART - beside,
            };
            let decode_tok_s = decode(&numbers, weights, weights - pinned);
            ModelFit {
                size: size.name,
                format,
                bytes: (weights + beside) as u64,
                how,
                decode_tok_s: decode_tok_s.filter(|_| how != Placement::TooLarge),
                prefill_tok_s: (how == Placement::Mapped)
                    .then_some(numbers.macs_per_s / size.n_weights),
            }
        })
        .collect()
}

fn place(weights: f64, beside: f64, room: f64) -> Placement {
    if weights + beside <= room {
        Placement::Mapped
    } else if room * STREAMED_PART - beside >= weights * MIN_PINNED {
        Placement::Streamed
    } else {
        Placement::TooLarge
    }
}

/// Tokens per second where `read` bytes of the weights come from disk for each token: reading and
/// computing overlap. `None` where the disk was not measured.
fn decode(numbers: &NodeNumbers, weights: f64, read: f64) -> Option<f64> {
    let compute = weights / numbers.read_bytes_per_s;
    if read <= 0.0 {
        return Some(1.0 / compute);
    }
    let is_measured = numbers.disk_bytes_per_s > 0.0;
    is_measured.then(|| 1.0 / compute.max(read / numbers.disk_bytes_per_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_mapped_streamed_or_too_large() {
        assert_eq!(place(5e9, 1e9, 7e9), Placement::Mapped);
        assert_eq!(place(5e9, 1e9, 4e9), Placement::Streamed);
        assert_eq!(place(50e9, 1e9, 1.1e9), Placement::TooLarge);
    }

    #[test]
    fn the_slower_of_memory_and_disk_sets_the_speed() {
        let numbers = |disk_bytes_per_s| NodeNumbers {
            read_bytes_per_s: 10e9,
            macs_per_s: 1e12,
            disk_bytes_per_s,
        };
        assert_eq!(decode(&numbers(1e9), 5e9, 0.0), Some(2.0));
        assert_eq!(decode(&numbers(1e9), 5e9, 4e9), Some(0.25));
        assert_eq!(decode(&numbers(100e9), 5e9, 4e9), Some(2.0));
        assert_eq!(decode(&numbers(0.0), 5e9, 4e9), None);
    }
}
