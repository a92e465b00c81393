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
    /// By the types of keys and of values.
    attention: HashMap<[GpuKv; 2], PipelineId>,
    products: HashMap<(WeightFormat, ProductWay), PipelineId>,
}

impl Kernels {
    /// Compiles what matrices of these formats and keys of these types need, all at once.
    pub(super) fn new(
        host: &mut dyn Host,
        formats: impl Iterator<Item = WeightFormat>,
        kv: &[[GpuKv; 2]],
    ) -> Result<Self, Error> {
        let ways = [ProductWay::Columns, ProductWay::Tiles];
        let products = formats.flat_map(|format| ways.map(|way| (format, way)));
        let products = products.filter_map(|key| Some((key, Shader::product(key.0, key.1)?)));
        let (keys, mut shaders): (Vec<_>, Vec<_>) = products.unzip();
        let n_products = shaders.len();
        shaders.extend(kv.iter().map(|&[k, v]| Shader::attention(k, v)));
        shaders.extend([
            Shader::quantize(),
            Shader::add(),
            Shader::heads(),
            Shader::move_keys(),
            Shader::copy_blocks(),
            Shader::merge(),
        ]);
        let made = host.pipelines(&shaders)?;
        let (products, others) = made.split_at(n_products);
        let (attention, others) = others.split_at(kv.len());
        Ok(Self {
            quantize: others[0],
            add: others[1],
            heads: others[2],
            move_keys: others[3],
            copy_blocks: others[4],
            merge: others[5],
            attention: kv.iter().copied().zip(attention.iter().copied()).collect(),
            products: keys.into_iter().zip(products.iter().copied()).collect(),
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

    pub(super) fn attention(&self, kv: [GpuKv; 2]) -> PipelineId {
        self.attention[&kv]
    }
}

/// All layouts of activations.
pub(super) const LAYOUTS: [ActLayout; 3] = [ActLayout::Q8_256, ActLayout::Q8_32, ActLayout::F32];
