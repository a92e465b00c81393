//! Keys: the key of a state is a hash of everything that it depends on.
//!
//! ```text
//! root  = BLAKE3(versions, model, numerics, RoPEs, state header of no positions, omissions)
//! child = BLAKE3(parent, tokens)
//! ```
//! The versions are those of the segment format, of the numerics and of the program. The model is
//! a hash of its metadata and of samples of its tensors. The executor names its numerics: on the
//! CPU the instruction set, because products with float weights round differently on another one.
//! The state header has the shapes and element types of the KV cache, and the RoPE regime.
//! Omissions are the layers that are left out and the limit of experts, of a model that does not
//! run whole. Where texts have adapters, the root of their keys is a hash of this one, and of the
//! BLAKE3 of each adapter's files with its scale, in order.

use atta_model::{AdapterSet, Executor, SeqId, spec::LayerSpec};
use blake3::Hasher;

use super::segment::VERSION;
use crate::{Engine, Error, Reduced};

pub(crate) const KEY_BYTES: usize = 32;

/// Version of the numerics. Raise it when a change of kernels or of the forward pass changes bits
/// of the KV cache within one version of the program.
const NUMERICS: u32 = 3;

/// The RoPE of a layer, empty without attention.
fn rope_text(layer: &LayerSpec) -> String {
    let rope = layer.attention().map(|a| &a.rope);
    rope.map_or_else(String::new, |rope| format!("{rope:?}"))
}

fn omissions(reduced: &Reduced) -> String {
    format!("{:?} {:?}", reduced.layers, reduced.n_experts)
}

/// A hash of everything that a state depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(pub(crate) [u8; KEY_BYTES]);

impl Key {
    /// Key of the empty text in sequences of this executor.
    pub(crate) fn root(
        engine: &Engine,
        executor: &dyn Executor,
        seq: SeqId,
    ) -> Result<Self, Error> {
        let mut parts = Parts(Hasher::new());
        parts.add(&VERSION.to_le_bytes());
        parts.add(&NUMERICS.to_le_bytes());
        parts.add(env!("CARGO_PKG_VERSION").as_bytes());
        parts.add(&engine.identity()?.0);
        parts.add(executor.info().numerics.as_bytes());
        for layer in &engine.spec().layers {
            parts.add(rope_text(layer).as_bytes());
        }
        let mut header = Vec::new();
        executor.export(seq, 0..0, &mut header)?;
        parts.add(&header);
        // Whole models keep the keys that they had.
        if let Some(reduced) = engine.reduced() {
            parts.add(omissions(reduced).as_bytes());
        }
        Ok(parts.end())
    }

    /// Key of the empty text in sequences with these adapters, if this is the one without.
    pub(crate) fn with_adapters(self, engine: &Engine, adapters: AdapterSet) -> Self {
        if adapters.is_empty() {
            return self;
        }
        let mut parts = Parts(Hasher::new());
        parts.add(&self.0);
        for at in adapters.iter() {
            parts.add(&engine.adapters()[at.adapter].hash);
            parts.add(&at.scale.to_bits().to_le_bytes());
        }
        parts.end()
    }

    /// Key of a model: a hash of the metadata of its files and of samples of their tensors.
    pub(crate) fn of_model(files: &atta_store::ModelFiles) -> Result<Self, Error> {
        let mut parts = Parts(Hasher::new());
        files.fingerprint(|bytes| parts.add(bytes))?;
        Ok(parts.end())
    }

    /// Key of the times of steps of an engine, on an executor of these numerics: everything that
    /// they depend on, but for the machine, whose other programs change them as much.
    pub(crate) fn of_steps(engine: &Engine, numerics: &str) -> Result<Self, Error> {
        let mut parts = Parts(Hasher::new());
        parts.add(&engine.identity()?.0);
        parts.add(numerics.as_bytes());
        parts.add(&engine.step_threads().n_prompt().to_le_bytes());
        let weights = engine.model().weights();
        let all = weights.files().file_bytes().max(1);
        // Of a streamed model, the share in memory in eighths.
        let share = 8 * weights.io().pinned_bytes / all;
        parts.add(format!("{:?} {share}", engine.weights_at()).as_bytes());
        Ok(parts.end())
    }

    /// Key of the text with these tokens appended.
    pub(crate) fn child(&self, tokens: &[u32]) -> Self {
        let mut hasher = Hasher::new();
        hasher.update(&self.0);
        for id in tokens {
            hasher.update(&id.to_le_bytes());
        }
        Self(hasher.finalize().into())
    }
}

/// A hash of length-prefixed parts, so that no two lists of parts collide.
struct Parts(Hasher);

impl Parts {
    fn add(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn end(self) -> Key {
        Key(self.0.finalize().into())
    }
}
