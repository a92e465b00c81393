//! Reads all matrices of a model once, for backends that keep weights elsewhere.

use std::collections::BTreeMap;

use atta_formats::TensorType;
use atta_store::{Amount, Arrived, ExpertRequest, Projection, WeightGroup, WeightPass};

use super::{MatrixRef, Model};
use crate::{Error, Placement, Role, Share};

/// Some rows of a matrix, as they lie in a file.
#[derive(Clone, Copy, Debug)]
pub struct MatrixRows<'a> {
    /// What it is; the head is [`Role::Output`], whether it is the embedding or not.
    pub role: Role,
    /// Its layer; `None` for the head.
    pub layer: Option<usize>,
    /// Whose matrix it is, if it is that of an expert.
    pub expert: Option<usize>,
    /// Block type.
    pub ty: TensorType,
    /// Elements of a row.
    pub d_in: usize,
    /// The index of the first of these rows.
    pub first: usize,
    /// Whole rows.
    pub bytes: &'a [u8],
}

impl Model {
    /// Visits all rows of the matrices of a part, in the order of a step: those of layers, then the
    /// head if `part` has it; in a layer those that every token reads, then those of experts.
    ///
    /// # Errors
    /// Weights that cannot be read, and those of `visit`.
    pub fn read_matrices<E: From<Error>>(
        &self,
        part: &Share,
        visit: &mut dyn FnMut(&MatrixRows<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let store = |error: atta_store::Error| E::from(Error::from(error));
        let pass = WeightPass {
            layers: part.layers.clone(),
            wants_head: part.head,
        };
        self.weights.begin(&pass).map_err(store)?;
        for l in part.layers.clone() {
            for (group, matrices) in self.groups(l) {
                self.read_group(WeightGroup::Layer(l, group), &matrices, Some(l), visit)?;
            }
            self.read_experts(l, visit)?;
        }
        if part.head {
            let head = [(Role::Output, self.head_place())];
            self.read_group(WeightGroup::Head, &head, None, visit)?;
        }
        self.weights.end().map_err(store)
    }

    /// The matrices of a layer by weight group.
    fn groups(&self, l: usize) -> Vec<(Projection, Vec<(Role, MatrixRef)>)> {
        let mut groups: BTreeMap<usize, (Projection, Vec<_>)> = BTreeMap::new();
        for role in Role::ALL {
            if let Placement::Layer(group) = role.placement()
                && let Some(place) = self.layers[l].matrices[role as usize]
            {
                let known = groups.entry(group as usize);
                known.or_insert((group, Vec::new())).1.push((role, place));
            }
        }
        groups.into_values().collect()
    }

    fn read_group<E: From<Error>>(
        &self,
        group: WeightGroup<'_>,
        matrices: &[(Role, MatrixRef)],
        layer: Option<usize>,
        visit: &mut dyn FnMut(&MatrixRows<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for i in 0..self.weights.n_chunks(group) {
            let chunk = self.weights.chunk(group, i).map_err(Error::from)?;
            for &(role, place) in matrices {
                let rows = chunk.tensor(place.index);
                visit(&MatrixRows {
                    role,
                    layer,
                    expert: None,
                    ty: place.ty,
                    d_in: place.d_in,
                    first: rows.first * place.n_part_rows,
                    bytes: rows.bytes,
                })?;
            }
        }
        Ok(())
    }

    /// Reads the experts of a layer, each while the next one is on its way.
    fn read_experts<E: From<Error>>(
        &self,
        l: usize,
        visit: &mut dyn FnMut(&MatrixRows<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let n_experts = self.spec.layers[l].moe().map_or(0, |m| m.n_experts);
        let all: Vec<u32> = (0..n_experts as u32).collect();
        for pair in all.chunks(2) {
            let request = ExpertRequest {
                ids: pair,
                uses: &[1, 1][..pair.len()],
                n_rows: 1,
            };
            let requested = self.weights.request_experts(l, &request);
            requested.map_err(Error::from)?;
            let mut ids = pair.to_vec();
            let mut wanted = &mut ids[..];
            while !wanted.is_empty() {
                let amount = Amount { least: 1, most: 1 };
                let arrived = self.weights.arrived_experts(l, wanted, amount);
                let arrived = arrived.map_err(Error::from)?;
                let n = arrived.ids.len();
                self.visit_experts(l, &arrived, visit)?;
                drop(arrived);
                wanted = &mut wanted[n..];
            }
        }
        Ok(())
    }

    fn visit_experts<E: From<Error>>(
        &self,
        l: usize,
        arrived: &Arrived<'_>,
        visit: &mut dyn FnMut(&MatrixRows<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let tensors = &self.layers[l];
        let roles = Role::ALL.into_iter();
        let roles = roles.filter(|role| role.placement() == Placement::Experts);
        for role in roles.filter(|role| tensors.has_matrix(*role)) {
            for (k, &e) in arrived.ids.iter().enumerate() {
                let place = tensors.place(role);
                let index = k * tensors.n_expert_tensors + place.index;
                visit(&MatrixRows {
                    role,
                    layer: Some(l),
                    expert: Some(e as usize),
                    ty: place.ty,
                    d_in: place.d_in,
                    first: 0,
                    bytes: place.of_expert(arrived.chunk.tensor(index).bytes),
                })?;
            }
        }
        Ok(())
    }

    /// What keys and values of layer `l` are divided by before they become 16-bit codes, as
    /// exponents of two: of one head for all, `[d_head]`, or of each KV head; empty: by 1. Queries
    /// and results of heads are multiplied by the same.
    pub fn kv_exponents(&self, l: usize) -> [&[i8]; 2] {
        self.balances[l].exponents()
    }
}
