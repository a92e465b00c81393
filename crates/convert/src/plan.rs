//! Plans a conversion before anything is written: the type of each tensor, with notes for the user.

use std::collections::BTreeMap;

use atta_formats::TensorType;

use crate::{
    Checkpoint, Error, ImportanceMatrix, NamePattern, Tensor,
    mix::{Mix, ModelFacts, TensorShape, TypeSelector, fitting, is_quantized, order},
    quantize,
};

/// Upper bound for the layer count that a file claims.
const MAX_LAYERS: usize = 1 << 16;

/// Which types tensors are quantized to.
#[derive(Clone, Debug, Default)]
pub struct TypeSelection {
    /// The mix; `None`: every tensor keeps its type.
    pub mix: Option<&'static Mix>,
    /// Quantize all tensors to the base type of the mix, ignoring its rules.
    pub pure: bool,
    /// Types for tensors whose names match, instead of the mix; the first match wins.
    pub overrides: Vec<(NamePattern, TensorType)>,
    /// Types by the names of tensors, instead of a mix: those of [`crate::target`].
    pub chosen: BTreeMap<String, TensorType>,
}

impl TypeSelection {
    /// Whether all matrices are given types, by a mix or one by one.
    pub(crate) fn is_whole(&self) -> bool {
        self.mix.is_some() || !self.chosen.is_empty()
    }
}

/// The conversion of one tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Index in [`Checkpoint::tensors`].
    pub tensor: usize,
    /// The type to convert to.
    pub ty: TensorType,
    /// Notes for the user.
    pub notes: Vec<Note>,
}

/// A note about a tensor for the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// The tensor was quantized before, so errors add up.
    Requantized,
    /// Rows are not a whole number of blocks of this type, so a fallback type is used.
    DoesNotFit(TensorType),
    /// The importance matrix has no entry for this tensor.
    NoImportance,
    /// The importance matrix has seen too few tokens of this tensor, or of some of its experts, to
    /// weigh their columns.
    TooFewTokens,
}

/// The plan of a conversion.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The steps, in the order in which tensors are written.
    pub steps: Vec<Step>,
    /// Bytes of all tensors after the conversion.
    pub n_bytes: u64,
    /// Weights of all tensors.
    pub n_weights: u64,
    /// Indices of the overrides that apply to no tensor.
    pub unused_overrides: Vec<usize>,
}

impl Plan {
    /// Selects the type of every tensor.
    ///
    /// # Errors
    /// A type that cannot be quantized to or decoded, an importance matrix of other shapes, or none
    /// although the type requires one.
    pub fn new(
        checkpoint: &Checkpoint,
        types: &TypeSelection,
        importance: Option<&ImportanceMatrix>,
    ) -> Result<Self, Error> {
        let tensors = &checkpoint.tensors;
        let mut order_of: Vec<usize> = (0..tensors.len()).collect();
        if types.is_whole() {
            order_of.sort_by(|&a, &b| order(&tensors[a].name).cmp(&order(&tensors[b].name)));
        }
        let facts = facts(checkpoint, importance.is_some())?;
        let names = || tensors.iter().map(|t| t.name.as_str());
        let mut selector = types.mix.map(|mix| TypeSelector::new(mix, facts, names()));
        let mut plan = Self {
            steps: Vec::with_capacity(tensors.len()),
            n_bytes: 0,
            n_weights: 0,
            unused_overrides: unused_overrides(checkpoint, types),
        };
        for i in order_of {
            let tensor = &tensors[i];
            let step = step(i, tensor, types, selector.as_mut(), importance);
            plan.push(tensor, step.map_err(|error| error.of(&tensor.name))?)?;
        }
        Ok(plan)
    }

    fn push(&mut self, tensor: &Tensor, step: Step) -> Result<(), Error> {
        let shape = || Error::Shape {
            dims: tensor.dims.clone(),
            ty: step.ty,
        };
        let row = usize::try_from(tensor.d_row())
            .ok()
            .and_then(|d| step.ty.row_bytes(d))
            .ok_or_else(shape)?;
        self.n_bytes += tensor.n_rows() * row as u64;
        self.n_weights += tensor.n_rows() * tensor.d_row();
        self.steps.push(step);
        Ok(())
    }
}

/// The overrides that apply to no tensor.
fn unused_overrides(checkpoint: &Checkpoint, types: &TypeSelection) -> Vec<usize> {
    let first = |tensor: &Tensor| {
        let is_one = is_quantized(TensorShape {
            name: &tensor.name,
            dims: &tensor.dims,
        });
        types
            .overrides
            .iter()
            .position(|(name, _)| is_one && name.matches(&tensor.name))
    };
    let used: Vec<_> = checkpoint.tensors.iter().filter_map(first).collect();
    (0..types.overrides.len())
        .filter(|i| !used.contains(i))
        .collect()
}

/// The properties of the model that mixes depend on.
pub(crate) fn facts(checkpoint: &Checkpoint, has_importance: bool) -> Result<ModelFacts, Error> {
    let about = checkpoint.describe()?.metadata;
    let arch = about.str("general.architecture")?.unwrap_or_default();
    let count = |key: &str| {
        Ok::<_, Error>(
            about
                .u64(&format!("{arch}.{key}"))?
                .map_or(0, |n| n as usize),
        )
    };
    // Some models have a head count per layer; the first layer decides.
    let heads = |key: &str| {
        let key = format!("{arch}.{key}");
        let unsigned = || {
            about
                .u32s(&key)
                .ok()
                .flatten()
                .and_then(|all| all.get(0))
                .map(u64::from)
        };
        let signed = || {
            about
                .i32s(&key)
                .ok()
                .flatten()
                .and_then(|all| all.get(0))
                .and_then(|n| n.try_into().ok())
        };
        let n = about
            .u64(&key)
            .ok()
            .flatten()
            .or_else(unsigned)
            .or_else(signed);
        n.map_or(0, |n| n as usize)
    };
    let n_heads = heads("attention.head_count");
    let n_layers = count("block_count")?;
    let n_kv_heads = match heads("attention.head_count_kv") {
        0 => n_heads,
        n => n,
    };
    let n_group = n_heads / n_kv_heads.max(1);
    Ok(ModelFacts {
        n_layers: n_layers.min(MAX_LAYERS),
        n_nextn: count("nextn_predict_layers")?.min(n_layers),
        n_group,
        n_experts: count("expert_count")?,
        is_70b: n_layers == 80 && n_group > 1,
        is_tied: !checkpoint.tensors.iter().any(|t| t.name == "output.weight"),
        has_importance,
    })
}

fn step(
    i: usize,
    tensor: &Tensor,
    types: &TypeSelection,
    selector: Option<&mut TypeSelector>,
    importance: Option<&ImportanceMatrix>,
) -> Result<Step, Error> {
    let mut notes = Vec::new();
    let wanted = wanted(tensor, types, selector);
    let ty = fitting(wanted, tensor.d_row());
    if ty != wanted {
        notes.push(Note::DoesNotFit(wanted));
    }
    if ty != tensor.ty {
        if !tensor.ty.has_codec() {
            return Err(atta_formats::Error::NoCodec { ty: tensor.ty }.into());
        }
        if !quantize::supports(ty) {
            return Err(Error::NoQuantizer {
                ty,
                needs_importance: false,
            });
        }
        if tensor.ty.block_len() > 1 {
            notes.push(Note::Requantized);
        }
    }
    if ty != tensor.ty || tensor.rows.stored().is_none() {
        check_importance(tensor, ty, types, importance, &mut notes)?;
    }
    Ok(Step {
        tensor: i,
        ty,
        notes,
    })
}

/// The type of a tensor before the fallback for its row length.
fn wanted(
    tensor: &Tensor,
    types: &TypeSelection,
    selector: Option<&mut TypeSelector>,
) -> TensorType {
    let shape = TensorShape {
        name: &tensor.name,
        dims: &tensor.dims,
    };
    if !is_quantized(shape) {
        return tensor.ty;
    }
    if let Some((_, ty)) = types
        .overrides
        .iter()
        .find(|(name, _)| name.matches(&tensor.name))
    {
        return *ty;
    }
    if let Some(ty) = types.chosen.get(&tensor.name) {
        return *ty;
    }
    match (types.mix, selector) {
        (Some(mix), _) if types.pure || mix.is_float() => mix.base,
        (_, Some(selector)) => selector.select(shape),
        _ => tensor.ty,
    }
}

fn check_importance(
    tensor: &Tensor,
    ty: TensorType,
    types: &TypeSelection,
    importance: Option<&ImportanceMatrix>,
    notes: &mut Vec<Note>,
) -> Result<(), Error> {
    let ends = [
        "token_embd.weight",
        "per_layer_token_embd.weight",
        "output.weight",
    ];
    let is_end = ends.contains(&tensor.name.as_str());
    let needs = !is_end && types.mix.is_some_and(|mix| mix.needs_importance(ty))
        || quantize::needs_importance(ty);
    let entry = importance.and_then(|importance| importance.entry(&tensor.name));
    match entry {
        None if needs => {
            return Err(Error::NoQuantizer {
                ty,
                needs_importance: true,
            });
        }
        None if importance.is_some() && !is_end && ty.block_len() > 1 => {
            notes.push(Note::NoImportance)
        }
        Some(entry) if !entry.fits(&tensor.dims) => {
            return Err(Error::ImportanceShape {
                got: entry.shape(),
                dims: tensor.dims.clone(),
            });
        }
        Some(entry) if ty.is_own() && entry.n_unreached() > 0 => notes.push(Note::TooFewTokens),
        _ => {}
    }
    Ok(())
}
