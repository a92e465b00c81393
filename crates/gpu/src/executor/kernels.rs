//! The kernels of an executor, compiled: which text a product or a type of keys takes.

use crate::{
    ActLayout, Error, GpuKv, Host, PipelineId, ProductWay, ScanRule, Shader, WeightFormat,
};
use std::collections::{HashMap, HashSet};

/// Rows from which tiles are taken, where a format has them; not measured on hardware.
const TILE_ROWS: u32 = 16;

/// What kernels are needed for.
#[derive(Debug, Default)]
pub(super) struct KernelNeeds {
    /// Formats of matrices, of those that are multiplied several at once, of experts and of heads.
    pub(super) formats: HashSet<WeightFormat>,
    pub(super) joined: HashSet<WeightFormat>,
    pub(super) experts: HashSet<WeightFormat>,
    pub(super) heads: HashSet<WeightFormat>,
    pub(super) attention: HashSet<AttentionKind>,
    /// Rules of recurrent states.
    pub(super) rules: HashSet<ScanRule>,
}

/// A kernel of attention.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct AttentionKind {
    /// Types of keys and of values.
    pub(super) kv: [GpuKv; 2],
    /// Whether keys are the values.
    pub(super) is_latent: bool,
}

impl AttentionKind {
    fn shader(self) -> Shader {
        let [keys, values] = self.kv;
        match self.is_latent {
            true => Shader::latent_attention(keys),
            false => Shader::attention(keys, values),
        }
    }
}

/// Compiled kernels.
#[derive(Debug)]
pub(super) struct Kernels {
    pub(super) quantize: PipelineId,
    pub(super) add: PipelineId,
    pub(super) add_scaled: PipelineId,
    pub(super) convolve: PipelineId,
    pub(super) keep_inputs: PipelineId,
    pub(super) decays: PipelineId,
    pub(super) norm_heads: PipelineId,
    pub(super) multiply: PipelineId,
    pub(super) heads: PipelineId,
    pub(super) move_keys: PipelineId,
    pub(super) copy_blocks: PipelineId,
    pub(super) merge: PipelineId,
    pub(super) combine: PipelineId,
    pub(super) transposed: PipelineId,
    pub(super) copy_columns: PipelineId,
    /// The choice of experts, and their slots in order.
    pub(super) route: PipelineId,
    pub(super) group_slots: PipelineId,
    attention: HashMap<AttentionKind, PipelineId>,
    scans: HashMap<ScanRule, PipelineId>,
    products: Products,
    joined: Products,
    experts: Products,
    heads_of: Products,
}

/// The makers of products' kernels: of one matrix, of several, of those of experts and of heads.
type Maker = fn(WeightFormat, ProductWay) -> Option<Shader>;

/// Compiled products of a kind.
#[derive(Debug)]
struct Products(HashMap<(WeightFormat, ProductWay), PipelineId>);

impl Products {
    /// The kernels of some formats, among those that are compiled, by name.
    fn of(formats: &HashSet<WeightFormat>, make: Maker, made: &HashMap<&str, PipelineId>) -> Self {
        let all = texts(formats, make);
        Self(
            all.map(|(key, text)| (key, made[text.name.as_str()]))
                .collect(),
        )
    }

    /// How a product of so many rows is divided, and its kernel.
    fn of_rows(&self, format: WeightFormat, n_rows: u32) -> (ProductWay, PipelineId) {
        let tiles = self.0.get(&(format, ProductWay::Tiles));
        match tiles.filter(|_| n_rows >= TILE_ROWS) {
            Some(&tiles) => (ProductWay::Tiles, tiles),
            None => (ProductWay::Columns, self.0[&(format, ProductWay::Columns)]),
        }
    }
}

/// The texts of the products of some formats.
fn texts(
    formats: &HashSet<WeightFormat>,
    make: Maker,
) -> impl Iterator<Item = ((WeightFormat, ProductWay), Shader)> {
    let ways = [ProductWay::Columns, ProductWay::Tiles];
    let keys = formats
        .iter()
        .flat_map(move |&format| ways.map(|way| (format, way)));
    keys.filter_map(move |key| Some((key, make(key.0, key.1)?)))
}

impl KernelNeeds {
    /// The texts of all kernels, each once.
    fn shaders(&self) -> Vec<Shader> {
        let mut all = Vec::from(Shader::common());
        all.extend(self.rules.iter().copied().map(Shader::scan));
        all.extend(self.attention.iter().map(|kind| kind.shader()));
        all.extend(texts(&self.formats, Shader::product).map(|(_, text)| text));
        all.extend(texts(&self.joined, Shader::joined_product).map(|(_, text)| text));
        all.extend(texts(&self.experts, Shader::expert_product).map(|(_, text)| text));
        all.extend(texts(&self.heads, Shader::head_product).map(|(_, text)| text));
        all
    }
}

impl Kernels {
    /// Compiles all kernels that are needed at once.
    pub(super) fn new(host: &mut dyn Host, needs: &KernelNeeds) -> Result<Self, Error> {
        let shaders = needs.shaders();
        let names = shaders.iter().map(|shader| shader.name.as_str());
        let made: HashMap<&str, _> = names.zip(host.pipelines(&shaders)?).collect();
        let of = |shader: Shader| made[shader.name.as_str()];
        let attention = needs.attention.iter();
        let attention = attention.map(|&kind| (kind, of(kind.shader())));
        let scans = needs.rules.iter();
        let scans = scans.map(|&rule| (rule, of(Shader::scan(rule))));
        Ok(Self {
            quantize: of(Shader::quantize()),
            add: of(Shader::add()),
            add_scaled: of(Shader::add_scaled()),
            convolve: of(Shader::convolve()),
            keep_inputs: of(Shader::keep_inputs()),
            decays: of(Shader::decays()),
            norm_heads: of(Shader::norm_heads()),
            multiply: of(Shader::multiply()),
            heads: of(Shader::heads()),
            move_keys: of(Shader::move_keys()),
            copy_blocks: of(Shader::copy_blocks()),
            merge: of(Shader::merge()),
            combine: of(Shader::combine()),
            transposed: of(Shader::transposed()),
            copy_columns: of(Shader::copy_columns()),
            route: of(Shader::route()),
            group_slots: of(Shader::group_slots()),
            attention: attention.collect(),
            scans: scans.collect(),
            products: Products::of(&needs.formats, Shader::product, &made),
            joined: Products::of(&needs.joined, Shader::joined_product, &made),
            experts: Products::of(&needs.experts, Shader::expert_product, &made),
            heads_of: Products::of(&needs.heads, Shader::head_product, &made),
        })
    }

    /// How a product of so many rows is divided, and its kernel.
    pub(super) fn product(&self, format: WeightFormat, n_rows: u32) -> (ProductWay, PipelineId) {
        self.products.of_rows(format, n_rows)
    }

    /// The same of products with several matrices.
    pub(super) fn joined(&self, format: WeightFormat, n_rows: u32) -> (ProductWay, PipelineId) {
        self.joined.of_rows(format, n_rows)
    }

    /// The same of products with the matrices of experts, which have so many rows each if all have
    /// as many.
    pub(super) fn experts(&self, format: WeightFormat, n_rows: u32) -> (ProductWay, PipelineId) {
        self.experts.of_rows(format, n_rows)
    }

    /// The scan of a rule that was needed.
    pub(super) fn scan(&self, rule: ScanRule) -> PipelineId {
        self.scans[&rule]
    }

    /// The same of products with a matrix of each head.
    pub(super) fn of_heads(&self, format: WeightFormat, n_rows: u32) -> (ProductWay, PipelineId) {
        self.heads_of.of_rows(format, n_rows)
    }

    pub(super) fn attention(&self, kind: AttentionKind) -> PipelineId {
        self.attention[&kind]
    }
}

/// All layouts of activations.
pub(super) const LAYOUTS: [ActLayout; 3] = [ActLayout::Q8_256, ActLayout::Q8_32, ActLayout::F32];
