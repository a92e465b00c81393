//! The kernels of an executor, compiled: which text a product or a type of keys takes.

use crate::{ActLayout, Error, GpuKv, Host, PipelineId, ProductWay, Shader, WeightFormat};
use std::collections::HashMap;

/// Rows from which tiles are taken, where a format has them; not measured on hardware.
const TILE_ROWS: u32 = 16;

/// Compiled kernels.
#[derive(Debug)]
pub(super) struct Kernels {
    pub(super) quantize: PipelineId,
    pub(super) add: PipelineId,
    pub(super) heads: PipelineId,
    pub(super) move_keys: PipelineId,
    pub(super) copy_blocks: PipelineId,
    pub(super) merge: PipelineId,
    attention: HashMap<GpuKv, PipelineId>,
    products: HashMap<(WeightFormat, ProductWay), PipelineId>,
}

impl Kernels {
    /// Compiles what matrices of these formats and keys of these types need.
    pub(super) fn new(
        host: &mut dyn Host,
        formats: impl Iterator<Item = WeightFormat>,
        kv: &[GpuKv],
    ) -> Result<Self, Error> {
        let mut products = HashMap::new();
        for format in formats {
            for way in [ProductWay::Columns, ProductWay::Tiles] {
                if products.contains_key(&(format, way)) {
                    continue;
                }
                if let Some(shader) = Shader::product(format, way) {
                    products.insert((format, way), host.pipeline(&shader)?);
                }
            }
        }
        let mut attention = HashMap::new();
        for &kv in kv {
            attention.insert(kv, host.pipeline(&Shader::attention(kv))?);
        }
        Ok(Self {
            quantize: host.pipeline(&Shader::quantize())?,
            add: host.pipeline(&Shader::add())?,
            heads: host.pipeline(&Shader::heads())?,
            move_keys: host.pipeline(&Shader::move_keys())?,
            copy_blocks: host.pipeline(&Shader::copy_blocks())?,
            merge: host.pipeline(&Shader::merge())?,
            attention,
            products,
        })
    }

    /// How a product of so many rows is divided, and its kernel.
    pub(super) fn product(&self, format: WeightFormat, n_rows: u32) -> (ProductWay, PipelineId) {
        let tiles = self.products.get(&(format, ProductWay::Tiles));
        match tiles.filter(|_| n_rows >= TILE_ROWS) {
            Some(&tiles) => (ProductWay::Tiles, tiles),
            None => {
                let columns = self.products[&(format, ProductWay::Columns)];
                (ProductWay::Columns, columns)
            }
        }
    }

    pub(super) fn attention(&self, kv: GpuKv) -> PipelineId {
        self.attention[&kv]
    }
}

/// All layouts of activations.
pub(super) const LAYOUTS: [ActLayout; 3] = [ActLayout::Q8_256, ActLayout::Q8_32, ActLayout::F32];
