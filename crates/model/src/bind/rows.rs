//! The rows of a member, as tables of a plan: what it neither reads nor keeps is not in them.

use atta_store::{Extent, RowTable};

use super::TensorMatch;
use crate::{Error, Member, Share, TensorReq};

impl Member {
    /// Whether members divide the rows of this matrix.
    pub(super) fn divides(&self, req: &TensorReq) -> bool {
        req.role.is_divided() && self.split().divides(req.n_rows())
    }
}

/// A member's rows of a matrix.
pub(super) fn own_rows(table: RowTable, member: &Member) -> RowTable {
    let row_bytes = table.row_bytes;
    let n_rows = table.extent.bytes.checked_div(row_bytes).unwrap_or(0);
    let own = member.rows(n_rows as usize);
    let extent = Extent {
        offset: table.extent.offset + own.start as u64 * row_bytes,
        bytes: own.len() as u64 * row_bytes,
        ..table.extent
    };
    RowTable::contiguous(extent, row_bytes)
}

/// A member's rows of the matrix of every expert; a row of the table is a whole expert, maybe of
/// several matrices.
pub(super) fn own_rows_of_experts(
    table: RowTable,
    found: &TensorMatch<'_>,
    member: &Member,
) -> RowTable {
    let own = member.rows(found.req.n_rows());
    let d_in = found.req.shape.last().copied().unwrap_or(0);
    let row_bytes = found.info.ty.row_bytes(d_in).unwrap_or(0) as u64;
    let first = (found.rows.start + own.start) as u64;
    table.within_rows(first * row_bytes, own.len() as u64 * row_bytes)
}

/// Refuses members that would all do the same: no matrix has rows for each.
pub(super) fn check_member(
    member: &Member,
    share: &Share,
    reqs: &[TensorReq],
) -> Result<(), Error> {
    let mut held = reqs.iter().filter(|req| share.has(req.role, req.layer));
    match held.any(|req| member.divides(req)) {
        true => Ok(()),
        false => Err(Error::Options(format!(
            "{} members of a model whose matrices have too few rows for each",
            member.split().n_members()
        ))),
    }
}
