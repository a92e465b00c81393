//! Members: executors that compute one model together, each with some rows of every large matrix.
//!
//! ```text
//! own columns = W[own rows] act           every member, with rows of its own
//! columns     = own columns of all        gathered: copied, never added
//! ```
//! A number of a product depends on one row of the matrix only. So it is computed by exactly one
//! member, by the operations of one machine, and the others get its bits. Everything between the
//! products (norms, attention, its state) is computed by every member alike.
//!
//! This file divides rows and packs columns. How the numbers travel is for an [`Exchange`]; it
//! knows neither matrices nor their shapes.

use std::{num::NonZeroU32, ops::Range};

use atta_kernels::{Activations, Gated, GatedGroups, Groups, Job, Kernels, Pool};
use atta_store::{Budget, Projection, Reservation, WeightGroup};

use crate::{Error, Placement, Role, Share, blocks::MoeScratch, spec::ModelSpec};

mod units;

pub use units::{UnitShape, units};

/// Most members of one model.
const MAX_MEMBERS: usize = 16;

/// Sizes of blocks of rows. A member's rows are whole blocks of the largest size that gives each
/// member [`MIN_BLOCKS`]. Activations are quantized in blocks of 256, and kernels take tiles of
/// rows.
const ROW_BLOCKS: [usize; 4] = [256, 64, 16, 4];

/// Blocks of rows that every member has, if all are equally fast, before smaller blocks are taken.
const MIN_BLOCKS: usize = 4;

/// A division of the rows of matrices among members, in proportion to their speeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowSplit {
    /// The sum of the speeds up to each member.
    ends: Vec<u64>,
}

impl RowSplit {
    /// Divides among as many members as there are speeds, in any unit.
    ///
    /// # Errors
    /// [`Error::Options`] for no members or more than 16.
    pub fn new(speeds: &[NonZeroU32]) -> Result<Self, Error> {
        let n = speeds.len();
        if n == 0 || n > MAX_MEMBERS {
            return Err(Error::Options(format!(
                "{n} members: there are 1 to {MAX_MEMBERS}"
            )));
        }
        let sum = |sum: &mut u64, speed: &NonZeroU32| {
            *sum += u64::from(speed.get());
            Some(*sum)
        };
        Ok(Self {
            ends: speeds.iter().scan(0, sum).collect(),
        })
    }

    /// Number of members.
    pub fn n_members(&self) -> usize {
        self.ends.len()
    }

    /// The rows of a matrix of `n_rows` that a member computes: its own, or all of them if the
    /// matrix has too few to be divided.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn rows(&self, member: usize, n_rows: usize) -> Range<usize> {
        match self.divides(n_rows) {
            true => self.own(member, n_rows),
            false => 0..n_rows,
        }
    }

    /// Whether a matrix of `n_rows` has rows for each member. The product with another one is
    /// computed whole by all of them.
    pub fn divides(&self, n_rows: usize) -> bool {
        (0..self.n_members()).all(|member| !self.own(member, n_rows).is_empty())
    }

    fn own(&self, member: usize, n_rows: usize) -> Range<usize> {
        let start = member.checked_sub(1).map_or(0, |i| self.end(i, n_rows));
        start..self.end(member, n_rows)
    }

    /// So many rows are the members' rows of a matrix of `n_rows` a multiple of, but for its end.
    pub fn block(&self, n_rows: usize) -> usize {
        let n_least = MIN_BLOCKS * self.n_members();
        let mut fitting = ROW_BLOCKS.into_iter();
        let largest = fitting.find(|block| block * n_least <= n_rows);
        largest.unwrap_or(ROW_BLOCKS[ROW_BLOCKS.len() - 1])
    }

    /// The end of the rows of a member: the multiple of a block next to its share.
    fn end(&self, member: usize, n_rows: usize) -> usize {
        let block = self.block(n_rows);
        let n_blocks = n_rows.div_ceil(block) as u64;
        let total = self.ends[self.ends.len() - 1];
        let end = (2 * n_blocks * self.ends[member] + total) / (2 * total);
        (end as usize * block).min(n_rows)
    }
}

/// One of the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    split: RowSplit,
    index: usize,
}

impl Member {
    /// Member `index`; number 0 is the lead, which alone has logits.
    ///
    /// # Errors
    /// [`Error::Options`] if there is no such member.
    pub fn new(split: RowSplit, index: usize) -> Result<Self, Error> {
        match index < split.n_members() {
            true => Ok(Self { split, index }),
            false => Err(Error::Options(format!(
                "member {index} of {}",
                split.n_members()
            ))),
        }
    }

    /// The division of rows.
    pub fn split(&self) -> &RowSplit {
        &self.split
    }

    /// Its number.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Its rows of a matrix whose role is divided.
    pub(crate) fn rows(&self, n_rows: usize) -> Range<usize> {
        self.split.rows(self.index, n_rows)
    }

    fn is_lead(&self) -> bool {
        self.index == 0
    }
}

/// What a member loads of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberPart {
    /// Layers, embedding and head.
    pub share: Share,
    /// Whose rows of their large matrices.
    pub member: Member,
}

impl Role {
    /// Whether members divide the rows of this matrix, if it has enough ([`RowSplit::divides`]).
    /// Small ones, whose product takes less time than a message, and matrices of heads are computed
    /// whole by every member.
    pub fn is_divided(self) -> bool {
        match self.placement() {
            Placement::Layer(projection) => is_divided(projection),
            Placement::Head | Placement::Experts => true,
            Placement::LastLayer(_)
            | Placement::Resident
            | Placement::Embed
            | Placement::LayerEmbed => false,
        }
    }
}

/// Whether members divide the rows of the matrices of a weight group.
fn is_divided(projection: Projection) -> bool {
    use Projection as P;
    match projection {
        P::Qkv | P::QueryUp | P::AttnOut | P::SsmIn | P::SsmOut | P::GateUp | P::Down => true,
        P::Join
        | P::LayerInputs
        | P::Ngrams
        | P::MixerStreamsDown
        | P::MixerStreamsUp
        | P::StreamsBegin
        | P::LaurelLeft
        | P::LaurelRight
        | P::KeyUp
        | P::ValueUp
        | P::SsmX
        | P::SsmDt
        | P::FfnStreamsDown
        | P::FfnStreamsUp
        | P::Router
        | P::EmbedGate
        | P::EmbedOut
        | P::EndStreamsDown
        | P::EndStreamsUp
        | P::StreamsEnd => false,
    }
}

/// One gathering of columns. All members have the same units in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Batches that the members have computed before.
    pub batch: u64,
    /// Units of the batch before this one.
    pub index: u32,
    /// Who gets the columns.
    pub audience: Audience,
}

/// Who gets the columns of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Every member.
    All,
    /// Member 0.
    Lead,
}

/// Carries numbers between members.
pub trait Exchange: Send {
    /// Sends the numbers that this member computed of a unit, and waits for those of the others:
    /// `others[m]` has exactly the numbers of member `m` afterwards. Its length is how many they
    /// are; none of this member itself.
    ///
    /// # Errors
    /// A member that has failed or is gone, other numbers than expected ([`Error::Lost`]): numbers
    /// of another batch, of another unit, or of another count are never taken for these.
    fn gather(&mut self, unit: Unit, own: &[f32], others: &mut [Vec<f32>]) -> Result<(), Error>;

    /// Tells the other members that this one does not complete a batch: each that waits for its
    /// numbers, or will, gets an error.
    fn fail(&mut self, batch: u64, n_members: usize);
}

/// An executor's place among the members, and its buffers.
pub(crate) struct Members {
    member: Member,
    exchange: Box<dyn Exchange>,
    /// Batches before this one.
    batch: u64,
    /// The next unit.
    unit: u32,
    /// Own columns of a unit: of each of its products, row by row.
    own: Vec<f32>,
    /// The columns of each other member.
    others: Vec<Vec<f32>>,
    /// Rows of logits that fit in every member's buffers.
    n_logit_rows: usize,
    _memory: Reservation,
}

impl Members {
    /// Allocates buffers for batches of `n_rows` rows.
    pub(crate) fn new(
        member: Member,
        exchange: Box<dyn Exchange>,
        spec: &ModelSpec,
        n_rows: usize,
        budget: &Budget,
    ) -> Result<Self, Error> {
        let split = &member.split;
        let sizes = buffer_sizes(spec, split, n_rows);
        let n_bytes = columns_bytes(spec, split, n_rows);
        let memory = budget.reserve("columns of members", n_bytes)?;
        let others = sizes
            .iter()
            .enumerate()
            .map(|(m, &n)| match m == member.index {
                true => Vec::new(),
                false => Vec::with_capacity(n),
            });
        let rows_of_logits = |(m, n): (usize, &usize)| {
            let n_columns = split.rows(m, spec.n_vocab).len();
            n.checked_div(n_columns).unwrap_or(0)
        };
        let n_logit_rows = sizes.iter().enumerate().map(rows_of_logits).min();
        Ok(Self {
            exchange,
            batch: 0,
            unit: 0,
            own: Vec::with_capacity(sizes[member.index]),
            others: others.collect(),
            n_logit_rows: n_logit_rows.unwrap_or(0).max(1),
            _memory: memory,
            member,
        })
    }

    /// Ends a batch: it is computed only if every member has computed it.
    pub(crate) fn end(&mut self, done: Result<(), Error>) -> Result<(), Error> {
        let done = done.and_then(|()| self.exchange(Audience::All, &mut []));
        if done.is_err() {
            let n_members = self.member.split.n_members();
            self.exchange.fail(self.batch, n_members);
        }
        self.batch += 1;
        self.unit = 0;
        done
    }

    /// Completes the products of a head at the lead, `[n_rows, n_vocab]`.
    pub(crate) fn gather_logits(&mut self, out: &mut [f32], n_vocab: usize) -> Result<(), Error> {
        let n = (self.n_logit_rows * n_vocab).max(1);
        out.chunks_mut(n).try_for_each(|out| {
            let d_out = n_vocab;
            self.gather(Audience::Lead, &mut [Product { out, d_out }])
        })
    }

    /// Completes products whose own columns are computed; nothing to do if all of them are whole.
    fn gather(&mut self, audience: Audience, products: &mut [Product<'_>]) -> Result<(), Error> {
        let split = &self.member.split;
        match products.iter().any(|product| product.is_divided(split)) {
            true => self.exchange(audience, products),
            false => Ok(()),
        }
    }

    fn exchange(&mut self, audience: Audience, products: &mut [Product<'_>]) -> Result<(), Error> {
        let unit = Unit {
            batch: self.batch,
            index: self.unit,
            audience,
        };
        self.unit += 1;
        let Member { split, index } = &self.member;
        let receives = audience == Audience::All || self.member.is_lead();
        self.own.clear();
        if audience == Audience::All || !self.member.is_lead() {
            for product in products.iter().filter(|p| p.is_divided(split)) {
                product.pack(split.rows(*index, product.d_out), &mut self.own);
            }
        }
        for (m, numbers) in self.others.iter_mut().enumerate() {
            let len = |p: &Product<'_>| p.n_rows() * split.rows(m, p.d_out).len();
            let divided = products.iter().filter(|p| p.is_divided(split));
            let n = match receives && m != *index {
                true => divided.map(len).sum(),
                false => 0,
            };
            debug_assert!(n <= numbers.capacity(), "{n} columns of {unit:?}");
            numbers.resize(n, 0.0);
        }
        self.exchange.gather(unit, &self.own, &mut self.others)?;
        if !receives {
            return Ok(());
        }
        let others = self.others.iter().enumerate();
        for (m, numbers) in others.filter(|(m, _)| m != index) {
            let mut rest = &numbers[..];
            for product in products.iter_mut().filter(|p| p.is_divided(split)) {
                let rows = split.rows(m, product.d_out);
                rest = product.unpack(rows, rest);
            }
        }
        Ok(())
    }
}

/// The most numbers that one member computes of a unit in batches of `n_rows` rows: no message
/// between members has more.
pub fn most_numbers(spec: &ModelSpec, split: &RowSplit, n_rows: usize) -> usize {
    let sizes = buffer_sizes(spec, split, n_rows);
    sizes.into_iter().max().unwrap_or(0)
}

/// Memory of the columns that a member holds in batches of `n_rows` rows, bytes.
pub fn columns_bytes(spec: &ModelSpec, split: &RowSplit, n_rows: usize) -> u64 {
    let sizes = buffer_sizes(spec, split, n_rows);
    sizes.into_iter().map(|n| 4 * n as u64).sum()
}

/// Numbers of the largest unit of a batch of `n_rows` rows that each member computes.
fn buffer_sizes(spec: &ModelSpec, split: &RowSplit, n_rows: usize) -> Vec<usize> {
    let units = units(spec, split);
    let of_expert_rows = MoeScratch::n_act_rows(spec, n_rows);
    let n = |unit: &UnitShape, m| {
        let n_rows = match (unit.audience, unit.is_of_experts) {
            // The rest is gathered in further units.
            (Audience::Lead, _) => 1,
            (Audience::All, true) => of_expert_rows,
            (Audience::All, false) => n_rows,
        };
        unit.columns_of(split, m).saturating_mul(n_rows)
    };
    let largest = |m| units.iter().map(|unit| n(unit, m)).max().unwrap_or(0);
    (0..split.n_members()).map(largest).collect()
}

/// The result of a product, `[n_rows, d_out]`.
struct Product<'a> {
    out: &'a mut [f32],
    d_out: usize,
}

impl Product<'_> {
    fn is_divided(&self, split: &RowSplit) -> bool {
        split.divides(self.d_out)
    }

    fn n_rows(&self) -> usize {
        self.out.len() / self.d_out.max(1)
    }

    /// Appends some columns, row by row.
    fn pack(&self, columns: Range<usize>, numbers: &mut Vec<f32>) {
        for row in self.out.chunks_exact(self.d_out) {
            numbers.extend_from_slice(&row[columns.clone()]);
        }
    }

    /// Sets some columns, row by row; the numbers that are left.
    fn unpack<'n>(&mut self, columns: Range<usize>, numbers: &'n [f32]) -> &'n [f32] {
        let (own, rest) = numbers.split_at(self.n_rows() * columns.len());
        let rows = self.out.chunks_exact_mut(self.d_out);
        for (row, own) in rows.zip(own.chunks_exact(columns.len().max(1))) {
            row[columns.clone()].copy_from_slice(own);
        }
        rest
    }
}

/// Products with the matrices of chunks: computed here as far as the rows are here, and completed
/// by the other members, if there are any.
pub(crate) struct Products<'a> {
    kernels: Kernels,
    pool: &'a Pool,
    members: Option<&'a mut Members>,
    /// Whether the rows at hand are the last own rows of matrices that members divide.
    completes: bool,
}

impl<'a> Products<'a> {
    pub(crate) fn new(kernels: Kernels, pool: &'a Pool, members: Option<&'a mut Members>) -> Self {
        Self {
            kernels,
            pool,
            members,
            completes: false,
        }
    }

    /// Whether other members compute the same products, in one order.
    pub(crate) fn has_members(&self) -> bool {
        self.members.is_some()
    }

    /// Begins with a chunk of a group, which so many others follow.
    pub(crate) fn begin(&mut self, group: WeightGroup<'_>, n_following: usize) {
        self.completes = n_following == 0
            && match group {
                WeightGroup::Layer(_, projection) => is_divided(projection),
                WeightGroup::Experts(..) | WeightGroup::Head => true,
                WeightGroup::EmbedRows(_) | WeightGroup::LayerEmbedRows(_) => false,
            };
    }

    /// [`Kernels::matmul`].
    pub(crate) fn matmul<const N: usize>(
        &mut self,
        x: &Activations,
        mut jobs: [Job<'_>; N],
    ) -> Result<(), Error> {
        self.kernels.matmul(self.pool, x, &mut jobs);
        self.gather(jobs.map(|job| Product {
            d_out: job.w.n_whole(),
            out: job.out,
        }))
    }

    /// [`Kernels::matmul_gated`].
    pub(crate) fn matmul_gated(&mut self, x: &Activations, job: Gated<'_>) -> Result<(), Error> {
        let d_out = job.up.n_whole();
        let Gated { out, .. } = job;
        self.kernels.matmul_gated(
            self.pool,
            x,
            Gated {
                out: &mut *out,
                ..job
            },
        );
        self.gather([Product { out, d_out }])
    }

    /// [`Kernels::matmul_groups`].
    pub(crate) fn matmul_groups(&mut self, x: &Activations, job: Groups<'_>) -> Result<(), Error> {
        let d_out = (job.w)(0).0.n_whole();
        let Groups { bounds, w, out } = job;
        let own = Groups {
            bounds,
            w: &|group| w(group),
            out: &mut *out,
        };
        self.kernels.matmul_groups(self.pool, x, own);
        self.gather([Product { out, d_out }])
    }

    /// [`Kernels::matmul_gated_groups`].
    pub(crate) fn matmul_gated_groups(
        &mut self,
        x: &Activations,
        job: GatedGroups<'_>,
    ) -> Result<(), Error> {
        let d_out = (job.up)(0).0.n_whole();
        let GatedGroups {
            bounds,
            gate,
            up,
            activation,
            out,
        } = job;
        let own = GatedGroups {
            bounds,
            gate: &|group| gate(group),
            up: &|group| up(group),
            activation,
            out: &mut *out,
        };
        self.kernels.matmul_gated_groups(self.pool, x, own);
        self.gather([Product { out, d_out }])
    }

    fn gather<const N: usize>(&mut self, mut products: [Product<'_>; N]) -> Result<(), Error> {
        match &mut self.members {
            Some(members) if self.completes => members.gather(Audience::All, &mut products),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(speeds: &[u32]) -> RowSplit {
        let speeds: Vec<_> = speeds
            .iter()
            .map(|&n| NonZeroU32::new(n).unwrap())
            .collect();
        RowSplit::new(&speeds).unwrap()
    }

    #[test]
    fn every_row_belongs_to_one_member_in_whole_blocks() {
        for speeds in [
            &[1][..],
            &[1, 1],
            &[3, 1],
            &[1, 2, 1],
            &[5, 5, 5, 1],
            &[1; 16],
        ] {
            let split = split(speeds);
            for n_rows in [0, 1, 3, 4, 33, 64, 100, 576, 1536, 2048, 8192, 128_256] {
                let mut row = 0;
                for member in 0..split.n_members() {
                    let rows = split.rows(member, n_rows);
                    if !split.divides(n_rows) {
                        assert_eq!(rows, 0..n_rows, "{speeds:?}");
                        row = n_rows;
                        continue;
                    }
                    assert_eq!(rows.start, row, "{speeds:?} {n_rows}");
                    let block = split.block(n_rows);
                    assert!(rows.end == n_rows || rows.end.is_multiple_of(block));
                    row = rows.end;
                }
                assert_eq!(row, n_rows, "{speeds:?}");
            }
        }
    }

    #[test]
    fn rows_are_in_proportion_to_speeds() {
        assert_eq!(split(&[1, 1]).rows(0, 8192), 0..4096);
        assert_eq!(split(&[3, 1]).rows(1, 8192), 6144..8192);
        assert_eq!(split(&[1, 1]).rows(1, 576), 320..576);
        assert_eq!(split(&[1; 4]).block(2048), 64);
    }

    #[test]
    fn there_are_one_to_sixteen_members() {
        assert!(RowSplit::new(&[]).is_err());
        assert!(RowSplit::new(&[NonZeroU32::MIN; 17]).is_err());
        assert!(Member::new(split(&[1, 1]), 2).is_err());
    }

    #[test]
    fn columns_that_are_packed_and_unpacked_are_in_their_places() {
        let mut whole: Vec<f32> = (0..12).map(|i| i as f32).collect();
        let mut numbers = Vec::new();
        let d_out = 4;
        let product = Product {
            out: &mut whole,
            d_out,
        };
        product.pack(1..3, &mut numbers);
        assert_eq!(numbers, [1.0, 2.0, 5.0, 6.0, 9.0, 10.0]);
        let mut other = vec![0.0; 12];
        let mut product = Product {
            out: &mut other,
            d_out,
        };
        numbers.push(7.0);
        assert_eq!(product.unpack(1..3, &numbers), [7.0]);
        assert_eq!(other[4..8], [0.0, 5.0, 6.0, 0.0]);
    }
}
