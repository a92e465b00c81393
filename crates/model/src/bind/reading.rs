//! Reads all matrices of a model once, for backends that keep weights elsewhere.

use std::collections::BTreeMap;

use atta_formats::TensorType;
use atta_store::{Projection, WeightGroup, WeightPass};

use super::{MatrixRef, Model};
use crate::{Error, Placement, Role, Share};

/// Some rows of a matrix, as they lie in a file.
#[derive(Clone, Copy, Debug)]
pub struct MatrixRows<'a> {
    /// What it is; the head is [`Role::Output`], whether it is the embedding or not.
    pub role: Role,
    /// Its layer; `None` for the head.
    pub layer: Option<usize>,
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
    /// Visits all rows of the matrices that every token reads, in the order of a step: those of
    /// layers, then the head if `part` has it. Experts are not among them.
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
                    ty: place.ty,
                    d_in: place.d_in,
                    first: rows.first * place.n_part_rows,
                    bytes: rows.bytes,
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
