//! Reads LoRA adapters of peft: a directory with `adapter_config.json` and the tensors.
//!
//! A module `M` of the base has `M.lora_A.weight`, `[rank, d_in]`, and `M.lora_B.weight`, `[d_out,
//! rank]`; an embedding `M.lora_embedding_A`, `[rank, n_vocab]`, and `M.lora_embedding_B`. They get
//! the names of GGUF, and the rows of B the order that the converter of the base gives those of its
//! matrices. Scales of single modules, and those of rsLoRA, are put into alpha and B.

use std::{collections::BTreeMap, path::Path};

use atta_formats::{Metadata, TensorType, Writer};
use atta_model::{Placement, Role, TensorReq, arch, spec::ModelSpec};
use serde_json::Value;

use super::{
    config::Config, delta_net, delta_net_of, families, family::Family, heads::RowOrder, latent,
    rows::RowMap, tensors::to_usize,
};
use crate::{
    Checkpoint, Error, RowSource, Tensor, pickle,
    raw::{RawTensor, RawTensors},
    safetensors,
};

/// The configuration of an adapter.
pub const CONFIG: &str = "adapter_config.json";

/// The prefix of all names: the model within peft's.
const PREFIX: &str = "base_model.model.";

/// Switches that change the computation.
const SWITCHES: [&str; 4] = ["use_dora", "use_qalora", "use_bdlora", "lora_bias"];

/// Fields of further weights, or of another computation, that must be empty.
const EMPTY: [&str; 9] = [
    "modules_to_save",
    "layer_replication",
    "trainable_token_indices",
    "target_parameters",
    "alora_invocation_tokens",
    "arrow_config",
    "kasa_config",
    "velora_config",
    "monteclora_config",
];

/// Opens an adapter for a base with this metadata, as the checkpoint of a GGUF file. Adds warnings
/// for the user to `notes`.
///
/// # Errors
/// A file that cannot be read; a kind of adapter, or a field, that is not supported; a tensor for
/// which the base has no matrix, or that has not its shape. The message names it.
pub fn open(folder: &Path, base: &Metadata, notes: &mut Vec<String>) -> Result<Checkpoint, Error> {
    let config = Config::read(&folder.join(CONFIG))?;
    check(&config)?;
    let scales = Scales::read(&config)?;
    let spec = arch::lower(base)?;
    let architecture = base.shown("general.architecture");
    let raw = weights(folder)?;
    let files = raw.files.clone();
    let modules = modules(raw, notes)?;
    let family = family_of(&architecture, &spec, &modules, &config)?;
    let mut builder = AdapterBuilder {
        targets: Targets::of(family, &spec),
        scales: &scales,
        tensors: BTreeMap::new(),
    };
    for (module, halves) in &modules {
        builder.add(module, halves)?;
    }
    let mut metadata = Writer::new();
    metadata.set_str("general.architecture", &architecture);
    metadata.set_str("general.type", "adapter");
    if let Some(name) = folder.file_name() {
        metadata.set_str("general.name", &name.to_string_lossy());
    }
    metadata.set_str("adapter.type", "lora");
    metadata.set_f32("adapter.lora.alpha", scales.of_file() as f32);
    Ok(Checkpoint {
        metadata,
        tensors: builder.finish()?,
        files,
    })
}

/// Refuses what would be computed differently.
fn check(config: &Config) -> Result<(), Error> {
    if let Some(kind) = config.get("peft_type").filter(|kind| *kind != "LORA") {
        return Err(config.unsupported("peft_type", kind));
    }
    for field in SWITCHES {
        if config.flag_opt(field)? == Some(true) {
            return Err(config.unsupported(field, &Value::Bool(true)));
        }
    }
    let is_empty = |value: &Value| match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    for field in EMPTY {
        if let Some(value) = config.get(field).filter(|value| !is_empty(value)) {
            return Err(config.unsupported(field, value));
        }
    }
    match config.get("bias").filter(|bias| *bias != "none") {
        Some(bias) => Err(config.unsupported("bias", bias)),
        None => Ok(()),
    }
}

/// The tensors of a directory.
fn weights(folder: &Path) -> Result<RawTensors, Error> {
    let path = folder.join("adapter_model.safetensors");
    match path.exists() {
        true => safetensors::open(&path),
        false => pickle::open(&folder.join("adapter_model.bin")),
    }
}

/// What multiplies `B A` of each module.
struct Scales {
    alpha: f64,
    rank: f64,
    /// Alpha by the ends of names of modules.
    of_modules: Vec<(String, f64)>,
    is_rank_stabilized: bool,
}

impl Scales {
    fn read(config: &Config) -> Result<Self, Error> {
        let number = |field: &'static str| {
            let number = config.number_opt(&[field])?.filter(|x| *x > 0.0);
            number.ok_or_else(|| config.wrong(format!("{field} is missing, or not above 0")))
        };
        let mut of_modules = Vec::new();
        for (name, alpha) in config.object_opt("alpha_pattern")?.into_iter().flatten() {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.".contains(c);
            match alpha.as_f64().filter(|_| name.chars().all(is_plain)) {
                Some(alpha) => of_modules.push((name.clone(), alpha)),
                None => return Err(config.unsupported("alpha_pattern", &name.as_str().into())),
            }
        }
        Ok(Self {
            alpha: number("lora_alpha")?,
            rank: number("r")?,
            of_modules,
            is_rank_stabilized: config.flag_opt("use_rslora")?.unwrap_or(false),
        })
    }

    /// Alpha of the file: divided by the usual rank it is the usual scale.
    fn of_file(&self) -> f64 {
        match self.is_rank_stabilized {
            true => self.alpha * self.rank.sqrt(),
            false => self.alpha,
        }
    }

    /// What multiplies B of a module of this rank, beside alpha of the file divided by the rank.
    fn factor(&self, module: &str, rank: f64) -> f64 {
        let is_its = |name: &str| module == name || module.ends_with(&format!(".{name}"));
        let own = self.of_modules.iter().find(|(name, _)| is_its(name));
        let alpha = own.map_or(self.alpha, |(_, alpha)| *alpha);
        let scale = match self.is_rank_stabilized {
            true => alpha / rank.sqrt(),
            false => alpha / rank,
        };
        scale / (self.of_file() / rank)
    }
}

/// The two tensors of a module.
#[derive(Default)]
struct Halves {
    a: Option<RawTensor>,
    b: Option<RawTensor>,
    is_embedding: bool,
}

/// The tensors by the names of their modules.
fn modules(
    mut raw: RawTensors,
    notes: &mut Vec<String>,
) -> Result<BTreeMap<String, Halves>, Error> {
    // peft saves the weights of adapted embeddings, too.
    let n_dropped = raw.retain(|name| !name.ends_with(".base_layer.weight"));
    if n_dropped > 0 {
        notes.push(format!(
            "{n_dropped} tensors of the base that the adapter holds are taken from the base"
        ));
    }
    let names: Vec<String> = raw.names().map(str::to_owned).collect();
    let mut modules: BTreeMap<String, Halves> = BTreeMap::new();
    for name in names {
        let within = name.strip_prefix(PREFIX).unwrap_or(&name);
        let Some(half) = Half::of(within) else {
            return Err(Error::Unused.of(&name));
        };
        let halves = modules.entry(half.module.to_owned()).or_default();
        halves.is_embedding = half.is_embedding;
        let tensor = raw.take(&name);
        match half.is_b {
            true => halves.b = tensor,
            false => halves.a = tensor,
        }
    }
    Ok(modules)
}

/// The name of a tensor of an adapter, in parts.
struct Half<'a> {
    module: &'a str,
    is_b: bool,
    is_embedding: bool,
}

impl<'a> Half<'a> {
    fn of(name: &'a str) -> Option<Self> {
        let half = |end: &str, is_b, is_embedding| {
            Some(Self {
                module: name.strip_suffix(end)?,
                is_b,
                is_embedding,
            })
        };
        half(".lora_A.weight", false, false)
            .or_else(|| half(".lora_B.weight", true, false))
            .or_else(|| half(".lora_embedding_A", false, true))
            .or_else(|| half(".lora_embedding_B", true, true))
    }
}

/// The family of an architecture that has all modules.
fn family_of(
    architecture: &str,
    spec: &ModelSpec,
    modules: &BTreeMap<String, Halves>,
    config: &Config,
) -> Result<&'static Family, Error> {
    let mut unknown = None;
    let families = families::all().filter(|family| family.arch == architecture);
    // GGUF has multipliers of these families in its weights, where adapters do not expect them.
    for family in families.filter(|family| !family.folds_multipliers) {
        let targets = Targets::of(family, spec);
        match modules.keys().find(|module| targets.get(module).is_empty()) {
            None => return Ok(family),
            Some(module) => unknown = Some(module),
        }
    }
    Err(match unknown {
        Some(module) => Error::Unused.of(&format!("{PREFIX}{module}")),
        None => config.wrong(format!(
            "adapters of models of architecture {architecture:?} are not supported"
        )),
    })
}

/// A matrix of GGUF that a module of a checkpoint is, or is a part of.
struct Target {
    name: String,
    /// Shape of the matrix, or of that of each expert: rows, and elements of a row.
    shape: [u64; 2],
    /// Rows of the module, which may have those of several matrices.
    n_module_rows: u64,
    rows: RowMap,
    columns: RowMap,
    /// Which expert's, and how many there are.
    expert: Option<[u64; 2]>,
}

impl Target {
    /// The shapes of `A` and `B` in the adapter; those of an embedding lie the other way round.
    fn shapes(&self, rank: u64, is_embedding: bool) -> [[u64; 2]; 2] {
        let [n_rows, d_in] = self.shape;
        match is_embedding {
            true => [[rank, n_rows], [d_in, rank]],
            false => [[rank, d_in], [self.n_module_rows, rank]],
        }
    }
}

/// The matrices by the names of modules.
struct Targets(BTreeMap<String, Vec<Target>>);

impl Targets {
    fn of(family: &Family, spec: &ModelSpec) -> Self {
        let mut targets = Self(BTreeMap::new());
        let net = delta_net_of(spec);
        let d_head = spec.attentions().next().map_or(0, |a| a.d_head as u64);
        let order = RowOrder {
            family,
            net,
            d_head,
        };
        let reqs = spec.tensors();
        for req in reqs.iter().filter(|req| req.role.is_adaptable()) {
            targets.enter(&order, req);
        }
        targets
    }

    /// The matrices of a module, which wrappers of models call otherwise.
    fn get(&self, module: &str) -> &[Target] {
        let within = module.replacen("language_model.", "", 1);
        let bare = module.strip_prefix("transformer.").unwrap_or(module);
        let mut names = [module, &within, bare].into_iter();
        let found = names.find_map(|name| self.0.get(name));
        found.map_or(&[][..], Vec::as_slice)
    }

    fn enter(&mut self, order: &RowOrder<'_>, req: &TensorReq) {
        let family = order.family;
        let is_of_net = order
            .net
            .is_some_and(|net| delta_net::is_in_joined(net, req.role));
        let placed = req.role.placement();
        if latent::is_part(req.role) || is_of_net {
            return;
        }
        if placed == Placement::Experts {
            return self.enter_experts(family, req);
        }
        let fused = req.fused_in.as_ref();
        let fused = fused.and_then(|fused| Some((fused, family.fused(fused.name)?)));
        match fused {
            Some((fused, _)) if fused.rows.start > 0 => {}
            Some((fused, from)) => {
                let name = req.fused_name().unwrap_or_default();
                let module = family.in_layer(from, req.layer);
                self.push(&module, target(order, req, name, fused.n_rows as u64));
            }
            None => {
                let joined = family.gate_up.filter(|_| is_gate_or_up(req.role));
                let module = match joined {
                    Some(joined) => family.in_layer(joined, req.layer),
                    None => family.name(req.role, req.layer),
                };
                self.push(&module, target(order, req, req.name(), req.shape[0] as u64));
            }
        }
    }

    fn enter_experts(&mut self, family: &Family, req: &TensorReq) {
        let Some(experts) = &family.experts else {
            return;
        };
        let part = match req.role {
            Role::FfnGateExps => experts.parts[0],
            Role::FfnUpExps => experts.parts[1],
            _ => experts.parts[2],
        };
        let [n, d_out, d_in] = [0, 1, 2].map(|i| req.shape[i] as u64);
        for e in 0..n {
            let module = family.in_layer(&format!("{}{e}.{part}", experts.prefix), req.layer);
            let target = Target {
                name: req.name(),
                shape: [d_out, d_in],
                n_module_rows: d_out,
                rows: RowMap::Same,
                columns: RowMap::Same,
                expert: Some([e, n]),
            };
            self.push(&module, target);
        }
    }

    fn push(&mut self, tensor: &str, target: Target) {
        let module = tensor.strip_suffix(".weight").unwrap_or(tensor);
        self.0.entry(module.to_owned()).or_default().push(target);
    }
}

/// Whether a matrix is one of two that some checkpoints have as one.
fn is_gate_or_up(role: Role) -> bool {
    use Role::{FfnGate, FfnGateShexp, FfnUp, FfnUpShexp};
    matches!(role, FfnGate | FfnUp | FfnGateShexp | FfnUpShexp)
}

/// A matrix of `n_rows` rows, called `name` in GGUF.
fn target(order: &RowOrder<'_>, req: &TensorReq, name: String, n_rows: u64) -> Target {
    let is_second = matches!(req.role, Role::FfnUp | Role::FfnUpShexp);
    let is_joined = order.family.gate_up.is_some() && is_gate_or_up(req.role);
    let rows = match is_joined {
        true => RowMap::Part {
            take: n_rows,
            of: 2 * n_rows,
            first: if is_second { n_rows } else { 0 },
            step: 1,
        },
        false => order.of(req.role, n_rows),
    };
    let columns = order.net.map(|net| delta_net::column_order(net, req.role));
    Target {
        name,
        shape: [n_rows, req.shape[req.shape.len() - 1] as u64],
        n_module_rows: if is_joined { 2 * n_rows } else { n_rows },
        rows,
        columns: columns.unwrap_or(RowMap::Same),
        expert: None,
    }
}

/// A matrix in memory, `[n_rows, d_row]`.
struct Values {
    d_row: usize,
    values: Vec<f32>,
}

impl Values {
    /// The elements of a tensor of this shape.
    fn read(tensor: &RawTensor, shape: [u64; 2]) -> Result<Self, Error> {
        if tensor.dims() != shape || shape.contains(&0) {
            let [expected, got] = [&shape[..], tensor.dims()].map(<[u64]>::to_vec);
            return Err(Error::Dims { expected, got }.of(tensor.name()));
        }
        tensor.expect_floats()?;
        // No more than the file holds.
        let mut values = vec![0.0; to_usize(shape[0].saturating_mul(shape[1]))?];
        tensor.floats(0, &mut values)?;
        Ok(Self {
            d_row: to_usize(shape[1])?,
            values,
        })
    }

    fn n_rows(&self) -> usize {
        self.values.len() / self.d_row
    }

    /// `n` rows in another order.
    fn with_rows(&self, order: RowMap, n: u64) -> Self {
        let row = |i: u64| &self.values[order.source(i) as usize * self.d_row..][..self.d_row];
        Self {
            d_row: self.d_row,
            values: (0..n).flat_map(row).copied().collect(),
        }
    }

    /// The columns in another order.
    fn with_columns(&self, order: RowMap) -> Self {
        let column = |i: usize| order.source(i as u64) as usize;
        let in_order =
            |row: &[f32]| -> Vec<f32> { (0..self.d_row).map(|i| row[column(i)]).collect() };
        Self {
            d_row: self.d_row,
            values: self.values.chunks(self.d_row).flat_map(in_order).collect(),
        }
    }

    fn transposed(&self) -> Self {
        let column = |i: usize| self.values.iter().skip(i).step_by(self.d_row).copied();
        Self {
            d_row: self.n_rows(),
            values: (0..self.d_row).flat_map(column).collect(),
        }
    }

    fn times(mut self, factor: f32) -> Self {
        if factor != 1.0 {
            self.values.iter_mut().for_each(|x| *x *= factor);
        }
        self
    }
}

/// A factor in GGUF's order.
struct BuiltFactor {
    ty: TensorType,
    /// How many experts there are; `None` without any.
    n_experts: Option<u64>,
    /// By expert; one without experts.
    parts: BTreeMap<u64, Values>,
}

/// Builds the tensors of the file.
struct AdapterBuilder<'a> {
    targets: Targets,
    scales: &'a Scales,
    tensors: BTreeMap<String, BuiltFactor>,
}

impl AdapterBuilder<'_> {
    fn add(&mut self, module: &str, halves: &Halves) -> Result<(), Error> {
        let missing = |end: &str| Error::Missing.of(&format!("{PREFIX}{module}{end}"));
        let a = halves.a.as_ref().ok_or_else(|| missing(".lora_A"))?;
        let b = halves.b.as_ref().ok_or_else(|| missing(".lora_B"))?;
        let rank = a.dims().first().copied().unwrap_or(0);
        let factor = self.scales.factor(module, rank as f64) as f32;
        let types = [type_of(a, 1.0), type_of(b, factor)];
        for target in self.targets.get(module) {
            let shapes = target.shapes(rank, halves.is_embedding);
            let a = Values::read(a, shapes[0])?;
            let b = Values::read(b, shapes[1])?.times(factor);
            let factors = match halves.is_embedding {
                true => [a.transposed(), b],
                false => [
                    a.with_columns(target.columns),
                    b.with_rows(target.rows, target.shape[0]),
                ],
            };
            for ((values, ty), end) in factors.into_iter().zip(types).zip(["lora_a", "lora_b"]) {
                enter(&mut self.tensors, target, end, ty, values);
            }
        }
        Ok(())
    }

    /// The tensors, those of experts stacked.
    fn finish(self) -> Result<Vec<Tensor>, Error> {
        let tensors = self.tensors.into_iter();
        tensors.map(|(name, built)| built.stacked(name)).collect()
    }
}

/// Enters a factor of a matrix, or of that of an expert.
fn enter(
    tensors: &mut BTreeMap<String, BuiltFactor>,
    target: &Target,
    end: &str,
    ty: TensorType,
    values: Values,
) {
    let name = format!("{}.{end}", target.name);
    let built = tensors.entry(name).or_insert_with(|| BuiltFactor {
        ty,
        n_experts: target.expert.map(|[_, n]| n),
        parts: BTreeMap::new(),
    });
    if built.ty != ty {
        built.ty = TensorType::F32;
    }
    let expert = target.expert.map_or(0, |[e, _]| e);
    built.parts.insert(expert, values);
}

/// The type of a factor in the file: that of the adapter, unless its numbers change.
fn type_of(raw: &RawTensor, factor: f32) -> TensorType {
    let ty = raw.dtype().tensor_type().filter(|_| factor == 1.0);
    ty.unwrap_or(TensorType::F32)
}

impl BuiltFactor {
    /// The tensor of this name.
    fn stacked(self, name: String) -> Result<Tensor, Error> {
        let n = self.n_experts.unwrap_or(1);
        let first = self.parts.values().next();
        let [n_rows, d_row] = first.map_or([0, 0], |values| [values.n_rows(), values.d_row]);
        let is_alike = |values: &Values| [values.n_rows(), values.d_row] == [n_rows, d_row];
        if self.parts.len() as u64 != n || !self.parts.values().all(is_alike) {
            let n_adapted = self.parts.len() as u64;
            return Err(Error::Experts { n_adapted, n }.of(&name));
        }
        let experts = self.n_experts.into_iter();
        let parts = self.parts.into_values().flat_map(|values| values.values);
        Ok(Tensor {
            name,
            dims: experts.chain([n_rows as u64, d_row as u64]).collect(),
            ty: self.ty,
            rows: Box::new(RowsInMemory {
                d_row,
                values: parts.collect(),
            }),
        })
    }
}

/// Rows that were computed.
struct RowsInMemory {
    d_row: usize,
    values: Vec<f32>,
}

impl RowSource for RowsInMemory {
    fn read(&self, first: u64, out: &mut [f32]) -> Result<(), Error> {
        let start = usize::try_from(first).ok();
        let start = start.and_then(|first| first.checked_mul(self.d_row));
        let rows = start.and_then(|start| self.values.get(start..)?.get(..out.len()));
        out.copy_from_slice(rows.ok_or(Error::NoRow { row: first })?);
        Ok(())
    }
}
