//! Binds the tensors of a file to a spec: the file has exactly what the spec asks for, or it is
//! refused.
//!
//! Vectors (norms, biases) are decoded to f32 on the heap here, since they are small and every
//! token reads them. Of matrices only type, shape and place in a weight group are stored here.

mod balance;
mod cost;
mod lent;
mod matching;
mod reading;
mod rows;

use std::{collections::HashSet, ops::Range, sync::Arc};

use atta_formats::{Directory, Encoding, TensorInfo, TensorType};
use atta_kernels::{Layouts, Matrix};
use atta_store::{
    Budget, ChunkGuard, Extent, InMemory, LayerTables, ModelFiles, Plan, Projection, Reservation,
    RowTable, Weights,
};

use crate::{
    Adapter, Error, Member, MemberPart, Placement, Role, Share, TensorReq, arch,
    blocks::Affine,
    spec::{Factors, LayerSpec, ModelSpec, Outputs},
};
use balance::Balance;
pub(crate) use matching::GUESSED;
use matching::{TensorMatch, match_tensors};
use rows::{check_member, own_rows, own_rows_of_experts};

pub use cost::{MatmulCost, ModelCost, PartCost};
pub use reading::MatrixRows;

/// A model that can be executed: its spec, its small tensors, and a source of its large ones.
pub struct Model {
    spec: ModelSpec,
    weights: Box<dyn Weights>,
    globals: Tensors,
    layers: Vec<Tensors>,
    /// Of each layer's keys and values.
    balances: Vec<Balance>,
    share: Share,
    /// Whose rows of the divided matrices are bound; `None`: all.
    member: Option<Member>,
    /// The model whose embedding it reads, if it has none.
    lender: Option<Arc<Model>>,
    pub(crate) adapters: Arc<[Adapter]>,
    _vectors: Reservation,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("share", &self.share)
            .finish_non_exhaustive()
    }
}

/// A bound tensor, for backends that keep weights elsewhere.
#[derive(Clone, Copy, Debug)]
pub enum BoundTensor<'a> {
    /// A small tensor (norm, bias), decoded to f32; taps of convolutions `[n_taps, d]`.
    Vector(&'a [f32]),
    /// A matrix in a file, or one per expert.
    Matrix {
        /// Block type.
        ty: TensorType,
        /// Rows (of one expert); of a member's model its own.
        d_out: usize,
        /// Elements of a row.
        d_in: usize,
        /// Location in the file; its rows are matrix rows, or whole experts.
        table: RowTable,
        /// The first row of the matrix in the table, or in each expert.
        first_row: usize,
        /// What multiplies its products: one factor, or one per expert; empty if the file has none.
        scales: &'a [f32],
    },
}

impl Model {
    /// Reads the spec from the metadata and binds every tensor.
    ///
    /// # Errors
    /// What [`arch::lower`] refuses; a tensor that is missing, has another shape, is of a type that
    /// we do not decode, or that the model has no use for.
    pub fn load(files: ModelFiles, budget: &Budget) -> Result<Self, Error> {
        let spec = arch::lower(files.directory().metadata())?;
        Self::with_spec(spec, files, budget)
    }

    /// Binds the tensors of a file to a given spec.
    ///
    /// # Errors
    /// As [`load`](Self::load), and a spec that describes no model.
    pub fn with_spec(spec: ModelSpec, files: ModelFiles, budget: &Budget) -> Result<Self, Error> {
        Self::with_source(spec, files, budget, |files, plan| {
            Ok::<_, Error>(Box::new(InMemory::new(files, plan)?))
        })
    }

    /// Binds tensors to weights of another source, which `source` makes from the files and the plan
    /// of tensors by group.
    ///
    /// # Errors
    /// As [`with_spec`](Self::with_spec), and what `source` returns.
    pub fn with_source<E: From<Error>>(
        spec: ModelSpec,
        files: ModelFiles,
        budget: &Budget,
        source: impl FnOnce(ModelFiles, Plan) -> Result<Box<dyn Weights>, E>,
    ) -> Result<Self, E> {
        let share = Share::whole(&spec);
        Self::with_share(spec, share, files, budget, source)
    }

    /// Binds a part of the model. The other tensors are checked in the file's directory, but not
    /// read.
    ///
    /// # Errors
    /// As [`with_source`](Self::with_source), and layers that the model does not have.
    pub fn with_share<E: From<Error>>(
        spec: ModelSpec,
        share: Share,
        files: ModelFiles,
        budget: &Budget,
        source: impl FnOnce(ModelFiles, Plan) -> Result<Box<dyn Weights>, E>,
    ) -> Result<Self, E> {
        let part = Part {
            share,
            member: None,
        };
        Self::bind(spec, part, files, budget, source)
    }

    /// Binds a member's rows of a part of the model: of every matrix that members divide
    /// ([`Role::is_divided`]) its own rows, of all others everything. The other rows are neither
    /// read nor kept.
    ///
    /// # Errors
    /// As [`with_share`](Self::with_share), and a part without any matrix that has rows for each
    /// member.
    pub fn with_member<E: From<Error>>(
        spec: ModelSpec,
        part: MemberPart,
        files: ModelFiles,
        budget: &Budget,
        source: impl FnOnce(ModelFiles, Plan) -> Result<Box<dyn Weights>, E>,
    ) -> Result<Self, E> {
        let MemberPart { share, member } = part;
        let part = Part {
            share,
            member: Some(member),
        };
        Self::bind(spec, part, files, budget, source)
    }

    fn bind<E: From<Error>>(
        spec: ModelSpec,
        part: Part,
        files: ModelFiles,
        budget: &Budget,
        source: impl FnOnce(ModelFiles, Plan) -> Result<Box<dyn Weights>, E>,
    ) -> Result<Self, E> {
        let Bound {
            globals,
            layers,
            plan,
            vectors,
        } = Bound::new(&spec, &part, &files, budget)?;
        let Part { share, member } = part;
        let balance = |(layer, t): (&LayerSpec, &Tensors)| match layer.attention() {
            Some(a) => Balance::new(a, t),
            None => Balance::default(),
        };
        let balances = spec.layers.iter().zip(&layers).map(balance).collect();
        Ok(Self {
            spec,
            weights: source(files, plan)?,
            globals,
            layers,
            balances,
            share,
            member,
            lender: None,
            adapters: Arc::default(),
            _vectors: vectors,
        })
    }

    /// Whose rows of the divided matrices are loaded; `None`: all.
    pub fn member(&self) -> Option<&Member> {
        self.member.as_ref()
    }

    /// The loaded part of the model.
    pub fn share(&self) -> &Share {
        &self.share
    }

    /// Looks up a tensor by role and layer. `None`: the model has no such tensor, or it is outside
    /// the loaded part.
    pub fn tensor(&self, role: Role, layer: Option<usize>) -> Option<BoundTensor<'_>> {
        let tensors = match layer {
            Some(l) => self.layers.get(l)?,
            None => &self.globals,
        };
        let matrix = |w: MatrixRef| BoundTensor::Matrix {
            ty: w.ty,
            d_out: w.own().len(),
            d_in: w.d_in,
            table: w.table,
            first_row: w.first_row,
            scales: tensors.scales[role as usize].as_deref().unwrap_or(&[]),
        };
        let held = tensors.matrices[role as usize].filter(|_| self.share.has(role, layer));
        tensors
            .vector_opt(role)
            .map(BoundTensor::Vector)
            .or(held.map(matrix))
    }

    /// The spec.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// The source of the weights.
    pub fn weights(&self) -> &dyn Weights {
        self.weights.as_ref()
    }

    /// Tensors of the whole model.
    pub(crate) fn globals(&self) -> &Tensors {
        &self.globals
    }

    /// Tensors of a layer.
    pub(crate) fn layer(&self, l: usize) -> &Tensors {
        &self.layers[l]
    }

    /// What keys and values of a layer are divided by before they become codes.
    pub(crate) fn balance(&self, l: usize) -> &Balance {
        &self.balances[l]
    }

    /// The token embedding, one row of it: tensor `i` of
    /// [`WeightGroup::EmbedRows`](atta_store::WeightGroup::EmbedRows).
    pub(crate) fn embedding<'a>(&self, rows: &'a ChunkGuard<'_>, i: usize) -> Matrix<'a> {
        let table = self.embed_place().expect("an embedding was bound or lent");
        MatrixRef {
            d_out: 1,
            index: i,
            ..table
        }
        .at(rows, 1.0)
    }

    /// The embedding of a token in every layer, a row of `[n_layers * d]`, or a row of a table of
    /// n-grams: tensor `i` of
    /// [`WeightGroup::LayerEmbedRows`](atta_store::WeightGroup::LayerEmbedRows).
    pub(crate) fn layer_embedding<'a>(&self, rows: &'a ChunkGuard<'_>, i: usize) -> Matrix<'a> {
        let table = self.globals.place(Role::PerLayerTokenEmbd);
        MatrixRef {
            d_out: 1,
            index: i,
            ..table
        }
        .at(rows, 1.0)
    }

    /// The rows of the output head that are at hand; of the embedding where the model has no head
    /// of its own.
    pub(crate) fn head<'a>(&self, chunk: &'a ChunkGuard<'_>) -> Matrix<'a> {
        self.head_place()
            .at(chunk, self.globals.scale(Role::Output, 0))
    }

    /// The layout of activations that the output head is multiplied with.
    pub(crate) fn head_layout(&self) -> Layouts {
        self.head_place().layout()
    }

    fn head_place(&self) -> MatrixRef {
        let own = self.layers[0].matrices[Role::NextnSharedHeadHead as usize];
        own.or(self.globals.matrices[Role::Output as usize])
            .unwrap_or_else(|| {
                let tied = self.globals.place(Role::TokenEmbd);
                tied.of_member(self.member.as_ref())
            })
    }
}

impl Share {
    /// The tensors of a file that this part of the model reads, in the order of the directory.
    ///
    /// # Errors
    /// A file that has not exactly the tensors of the model.
    pub fn tensors<'a>(
        &self,
        spec: &ModelSpec,
        directory: &'a Directory,
    ) -> Result<Vec<&'a TensorInfo>, Error> {
        let reqs = spec.tensors();
        let found = match_tensors(spec, &reqs, directory)?;
        let held = found
            .iter()
            .filter(|found| self.has(found.req.role, found.req.layer));
        let names = held.flat_map(|found| std::iter::once(found.info).chain(found.scale));
        let names: HashSet<&str> = names.map(|info| info.name.as_str()).collect();
        let tensors = directory.tensors().iter();
        Ok(tensors
            .filter(|info| names.contains(info.name.as_str()))
            .collect())
    }
}

impl MemberPart {
    /// Bytes of a file that this member reads.
    ///
    /// # Errors
    /// A file that has not exactly the tensors of the model.
    pub fn n_bytes(&self, spec: &ModelSpec, directory: &Directory) -> Result<u64, Error> {
        let reqs = spec.tensors();
        let found = match_tensors(spec, &reqs, directory)?;
        let held = found
            .iter()
            .filter(|found| self.share.has(found.req.role, found.req.layer));
        let own_bytes = |found: &TensorMatch<'_>| {
            let n_scales = found.scale.map_or(0, |scale| scale.n_bytes);
            let n_rows = found.rows.len();
            let n_own = match found.req.role.is_divided() {
                true => self.member.rows(n_rows).len(),
                false => n_rows,
            };
            // A tensor of the file may hold several matrices.
            (found.info.n_bytes + n_scales) / found.n_rows.max(1) as u64 * n_own as u64
        };
        Ok(held.map(own_bytes).sum())
    }
}

/// The tensors of a file, arranged as in the spec.
struct Bound {
    globals: Tensors,
    layers: Vec<Tensors>,
    plan: Plan,
    vectors: Reservation,
}

/// The part of a model that is loaded.
struct Part {
    share: Share,
    /// `None`: all rows.
    member: Option<Member>,
}

impl Bound {
    fn new(
        spec: &ModelSpec,
        part: &Part,
        files: &ModelFiles,
        budget: &Budget,
    ) -> Result<Self, Error> {
        spec.check()?;
        let Part { share, member } = part;
        let is_nothing = share.layers.is_empty() && !share.embed && !share.head;
        if is_nothing || share.layers.end > spec.layers.len() {
            let layers = &share.layers;
            let n = spec.layers.len();
            return Err(Error::Options(format!(
                "layers {layers:?} of a model of {n}"
            )));
        }
        spec.check_separable(&share.layers)?;
        let reqs = spec.tensors();
        if let Some(member) = member {
            check_member(member, share, &reqs)?;
        }
        let found = match_tensors(spec, &reqs, files.directory())?;
        let n_bytes = found
            .iter()
            .filter(|found| {
                found.req.role.placement() == Placement::Resident
                    && share.has(found.req.role, found.req.layer)
            })
            .map(|found| 4 * found.req.shape.iter().product::<usize>() as u64)
            .sum();
        let vectors = budget.reserve("norms and biases", n_bytes)?;
        let mut binder = Binder::new(files, part, spec.layers.len());
        for found in &found {
            binder.bind(found)?;
        }
        let Binder {
            globals,
            layers,
            mut plan,
            ..
        } = binder;
        if spec.head.outputs == Outputs::Logits {
            let tied = |rows| match member {
                Some(member) => own_rows(rows, member),
                None => rows,
            };
            plan.head = plan.head.or(plan.embed.map(tied));
        }
        let plan = plan.restrict(share.layers.clone(), share.embed, share.head);
        Ok(Self {
            globals,
            layers,
            plan,
            vectors,
        })
    }
}

/// The tensors of a layer (or those of the whole model), by role.
pub(crate) struct Tensors {
    matrices: [Option<MatrixRef>; Role::COUNT],
    vectors: [Option<Box<[f32]>>; Role::COUNT],
    /// Factors of matrices, `[1]`, or of each expert, `[n_experts]`.
    scales: [Option<Box<[f32]>>; Role::COUNT],
    /// Tensors of each expert: gate, up and down, or gate and up in one.
    n_expert_tensors: usize,
}

impl Default for Tensors {
    fn default() -> Self {
        Self {
            matrices: [None; Role::COUNT],
            vectors: [const { None }; Role::COUNT],
            scales: [const { None }; Role::COUNT],
            n_expert_tensors: 0,
        }
    }
}

/// Where a matrix is: tensor number `index` of its weight group, or of each expert of the group.
#[derive(Clone, Copy)]
struct MatrixRef {
    ty: TensorType,
    d_out: usize,
    d_in: usize,
    index: usize,
    is_of_experts: bool,
    table: RowTable,
    /// Rows of each part of the table; 1 unless the parts are matrices of heads or experts.
    n_part_rows: usize,
    /// Its first row in each expert of the tensor.
    first_row: usize,
    /// First and end of the rows that are bound: all, or those of a member.
    own: [usize; 2],
}

impl MatrixRef {
    /// The matrix of a tensor in `table`, tensor `index` of its group.
    fn new(found: &TensorMatch<'_>, table: RowTable, index: usize) -> Self {
        let req = found.req;
        let is_of_experts = req.role.placement() == Placement::Experts;
        let (d_out, d_in, n_part_rows) = match req.shape[..] {
            [_, d_out, d_in] if is_of_experts => (d_out, d_in, 0),
            [ref rows @ .., d_in] => {
                let n_rows = rows.iter().product();
                (n_rows, d_in, n_rows / req.n_parts)
            }
            [] => unreachable!("a tensor has a shape"),
        };
        Self {
            ty: found.info.ty,
            d_out,
            d_in,
            index,
            is_of_experts,
            table,
            n_part_rows,
            first_row: if is_of_experts { found.rows.start } else { 0 },
            own: [0, d_out],
        }
    }

    /// The matrix with a member's rows, which are all that its table has.
    fn of_member(self, member: Option<&Member>) -> Self {
        let Some(member) = member else {
            return self;
        };
        let own = member.rows(self.d_out);
        Self {
            own: [own.start, own.end],
            first_row: 0,
            ..self
        }
    }

    /// The rows that are bound.
    fn own(&self) -> Range<usize> {
        self.own[0]..self.own[1]
    }

    /// The rows of the matrix that are in a chunk, to be multiplied by `scale`.
    fn at<'a>(self, chunk: &'a ChunkGuard<'_>, scale: f32) -> Matrix<'a> {
        let rows = chunk.tensor(self.index);
        let row_bytes = self.ty.row_bytes(self.d_in).unwrap_or(1).max(1);
        let encoding = Encoding { ty: self.ty, scale };
        let bytes = match self.is_of_experts {
            true => self.of_expert(rows.bytes),
            false => rows.bytes,
        };
        let n_rows = bytes.len() / row_bytes;
        let matrix = Matrix::new(encoding, n_rows, self.d_in, bytes);
        matrix
            .expect("sizes were checked when it was bound")
            .rows_of(self.d_out, self.own[0] + rows.first * self.n_part_rows)
    }

    /// The bytes of the matrix, among those of an expert's tensor.
    fn of_expert<'a>(&self, tensor: &'a [u8]) -> &'a [u8] {
        let row_bytes = self.ty.row_bytes(self.d_in).unwrap_or(1).max(1);
        &tensor[self.first_row * row_bytes..][..self.own().len() * row_bytes]
    }

    fn layout(self) -> Layouts {
        Matrix::layout_of(self.ty).expect("types were checked when it was bound")
    }
}

impl Tensors {
    fn place(&self, role: Role) -> MatrixRef {
        self.matrices[role as usize].expect("every required tensor was bound")
    }

    /// The rows of a matrix that are in a chunk.
    pub(crate) fn matrix<'a>(&self, role: Role, chunk: &'a ChunkGuard<'_>) -> Matrix<'a> {
        self.place(role).at(chunk, self.scale(role, 0))
    }

    /// The heads whose matrices are in a chunk.
    pub(crate) fn heads(&self, role: Role, chunk: &ChunkGuard<'_>) -> Range<usize> {
        let place = self.place(role);
        let parts = chunk.tensor(place.index);
        let n_parts = parts.bytes.len() as u64 / place.table.row_bytes.max(1);
        parts.first..parts.first + n_parts as usize
    }

    /// Some rows of the matrix of head `h`, which is in a chunk.
    pub(crate) fn head<'a>(
        &self,
        role: Role,
        h: usize,
        rows: Range<usize>,
        chunk: &'a ChunkGuard<'_>,
    ) -> Matrix<'a> {
        let first = h * self.place(role).n_part_rows;
        let rows = first + rows.start..first + rows.end;
        let part = self.matrix(role, chunk).row_range(rows);
        part.rows_of(part.d_out(), 0)
    }

    /// The factor of a matrix, or of that of expert `e`.
    fn scale(&self, role: Role, e: usize) -> f32 {
        self.scales[role as usize]
            .as_ref()
            .map_or(1.0, |scales| scales[e])
    }

    /// Whether there is such a matrix.
    pub(crate) fn has_matrix(&self, role: Role) -> bool {
        self.matrices[role as usize].is_some()
    }

    /// The layouts of activations that some matrices are multiplied with.
    pub(crate) fn layouts(&self, roles: &[Role]) -> Layouts {
        roles
            .iter()
            .fold(Layouts::EMPTY, |all, &role| all | self.place(role).layout())
    }

    /// A matrix of expert `e`, the `k`th one of a group of experts.
    pub(crate) fn expert<'a>(
        &self,
        role: Role,
        e: usize,
        k: usize,
        group: &'a ChunkGuard<'_>,
    ) -> Matrix<'a> {
        let place = self.place(role);
        MatrixRef {
            index: k * self.n_expert_tensors + place.index,
            ..place
        }
        .at(group, self.scale(role, e))
    }

    /// The bias of expert `e`, if experts have one: a row of the tensor of all.
    pub(crate) fn expert_bias(&self, role: Role, e: usize, d_out: usize) -> Option<&[f32]> {
        self.vector_opt(role)
            .map(|all| &all[e * d_out..(e + 1) * d_out])
    }

    /// A vector that the model must have.
    pub(crate) fn vector(&self, role: Role) -> &[f32] {
        self.vector_opt(role)
            .expect("every required tensor was bound")
    }

    /// Weight and bias of a norm.
    pub(crate) fn affine(&self, [weight, bias]: [Role; 2]) -> Affine<'_> {
        (self.vector(weight), self.vector_opt(bias))
    }

    /// The tensors of rope factors.
    pub(crate) fn rope_factors(&self) -> Factors<'_> {
        let [all, short, long] = [
            Role::RopeFreqs,
            Role::RopeFactorsShort,
            Role::RopeFactorsLong,
        ]
        .map(|role| self.vector_opt(role));
        Factors { all, short, long }
    }

    /// A vector that the model may have.
    pub(crate) fn vector_opt(&self, role: Role) -> Option<&[f32]> {
        self.vectors[role as usize].as_deref()
    }
}

struct Binder<'a> {
    files: &'a ModelFiles,
    share: &'a Share,
    member: Option<&'a Member>,
    globals: Tensors,
    layers: Vec<Tensors>,
    plan: Plan,
}

impl<'a> Binder<'a> {
    fn new(files: &'a ModelFiles, part: &'a Part, n_layers: usize) -> Self {
        Self {
            files,
            share: &part.share,
            member: part.member.as_ref(),
            globals: Tensors::default(),
            layers: (0..n_layers).map(|_| Tensors::default()).collect(),
            plan: Plan {
                layers: vec![LayerTables::default(); n_layers],
                experts: vec![Vec::new(); n_layers],
                ..Plan::default()
            },
        }
    }

    fn bind(&mut self, found: &TensorMatch<'_>) -> Result<(), Error> {
        let req = found.req;
        let member = self.member.filter(|m| m.divides(req));
        let extent = found.extent();
        let all = RowTable::contiguous(extent, extent.bytes / req.n_parts as u64);
        let rows = match member {
            Some(member) if req.role.placement() == Placement::Experts => {
                own_rows_of_experts(all, found, member)
            }
            Some(member) => own_rows(all, member),
            None => all,
        };
        let Some(index) = self.enter(req, rows) else {
            if self.share.has(req.role, req.layer) {
                let values = self.decode(found)?;
                self.tensors(req.layer).vectors[req.role as usize] = Some(values);
            }
            return Ok(());
        };
        let scales = match found.scale.filter(|_| self.share.has(req.role, req.layer)) {
            Some(info) => Some(finite(&info.name, self.values(info)?)?),
            None => None,
        };
        let n_expert_tensors = req.layer.map_or(0, |l| self.plan.experts[l].len());
        let tensors = self.tensors(req.layer);
        tensors.n_expert_tensors = n_expert_tensors;
        tensors.matrices[req.role as usize] =
            Some(MatrixRef::new(found, rows, index).of_member(member));
        tensors.scales[req.role as usize] = scales;
        Ok(())
    }

    /// Enters a tensor into its weight group, and returns its index there; `None` if its values are
    /// kept.
    fn enter(&mut self, req: &TensorReq, rows: RowTable) -> Option<usize> {
        let plan = &mut self.plan;
        Some(match (req.role.placement(), req.layer) {
            (Placement::Layer(group), layer) => {
                let groups = &mut plan.layers[layer.unwrap_or(0)];
                if req.role == Role::AttnKvB {
                    // The only tensor of both groups: each head's rows of values follow its keys'.
                    push(&mut groups[Projection::ValueUp as usize], rows);
                }
                push(&mut groups[group as usize], rows)
            }
            (Placement::LastLayer(group), _) => {
                let last = plan.layers.last_mut()?;
                push(&mut last[group as usize], rows)
            }
            (Placement::Experts, Some(l)) => {
                // Gate and up may be rows of one tensor.
                let tables = &mut plan.experts[l];
                let known = tables.iter().position(|table| *table == rows);
                known.unwrap_or_else(|| push(tables, rows))
            }
            (Placement::Embed, _) => table(&mut plan.embed, rows),
            (Placement::LayerEmbed, _) => table(&mut plan.layer_embed, rows),
            (Placement::Head, _) => table(&mut plan.head, rows),
            (Placement::Resident | Placement::Experts, _) => return None,
        })
    }

    /// All values of a tensor.
    fn values(&self, info: &TensorInfo) -> Result<Vec<f32>, Error> {
        let mut values = vec![0.0; info.shape.n_elements() as usize];
        let bytes = self.files.read(Extent {
            shard: info.shard,
            offset: info.offset,
            bytes: info.n_bytes,
        })?;
        let d_row = info.shape.dims().last().map_or(1, |&d| d as usize);
        atta_formats::decode_rows(info.ty, d_row, &bytes, &mut values)?;
        Ok(values)
    }

    /// The values of a tensor that is kept; the whole is decoded, since a row of a vector need not
    /// be whole blocks.
    fn decode(&self, found: &TensorMatch<'_>) -> Result<Box<[f32]>, Error> {
        let TensorMatch {
            req, info, rows, ..
        } = found;
        let values = self.values(info)?;
        let d: usize = req.shape[1..].iter().product();
        let mut values = values[rows.start * d..rows.end * d].to_vec();
        if matches!(
            req.role,
            Role::PleConv1d
                | Role::ShortconvConv
                | Role::SsmConv
                | Role::SsmConvQ
                | Role::SsmConvK
                | Role::SsmConvV
        ) {
            values = transposed(&values, d);
        }
        let is_factor = matches!(
            req.role,
            Role::RopeFreqs | Role::RopeFactorsShort | Role::RopeFactorsLong
        );
        let values = finite(&req.name(), values)?;
        match values.iter().find(|x| is_factor && **x <= 0.0) {
            Some(value) => Err(Error::Value {
                name: req.name(),
                value: *value,
            }),
            None => Ok(values),
        }
    }

    fn tensors(&mut self, layer: Option<usize>) -> &mut Tensors {
        match layer {
            Some(l) => &mut self.layers[l],
            None => &mut self.globals,
        }
    }
}

/// The columns of rows of `d`, one after another.
fn transposed(rows: &[f32], d: usize) -> Vec<f32> {
    let column = |i: usize| rows.iter().skip(i).step_by(d.max(1)).copied();
    (0..d).flat_map(column).collect()
}

/// Values that are all numbers.
fn finite(name: &str, values: Vec<f32>) -> Result<Box<[f32]>, Error> {
    match values.iter().find(|x| !x.is_finite()) {
        Some(&value) => Err(Error::Value {
            name: name.to_owned(),
            value,
        }),
        None => Ok(values.into_boxed_slice()),
    }
}

/// Enters a table that is read by rows; it is the only tensor of its group.
fn table(place: &mut Option<RowTable>, rows: RowTable) -> usize {
    *place = Some(rows);
    0
}

/// Appends a tensor to a group and returns its index.
fn push<T>(group: &mut Vec<T>, tensor: T) -> usize {
    group.push(tensor);
    group.len() - 1
}
