//! Disjoint parts of output buffers, handed to the threads of a pool, so that parallel writes are
//! safe.
//!
//! A [`Split`] divides a buffer into parts that never overlap; [`deal`] gives each part
//! to exactly one call of a closure. Algorithms only see the parts, which are ordinary `&mut`
//! slices or small views. This file knows nothing of the computation.

use crate::Pool;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A buffer that is divided into disjoint parts.
///
/// # Safety
/// Parts of different indices must not overlap, and each must stay inside what the implementor
/// borrows mutably.
pub(crate) unsafe trait Split: Sync {
    /// A mutable view of one part.
    type Part<'p>
    where
        Self: 'p;

    /// Number of parts.
    fn n_parts(&self) -> usize;

    /// Part `i`.
    ///
    /// # Safety
    /// `i < n_parts()`, and no other view of part `i` is alive.
    unsafe fn part(&self, i: usize) -> Self::Part<'_>;
}

/// Calls `f(i, part i)` once for every part, in one region of the pool. A thread takes a share of
/// the remaining parts: long runs of neighbours at first, single parts at the end, so that all
/// threads finish together. The exclusive borrow lasts as long as the parts, so that parts of two
/// deals cannot coexist.
pub(crate) fn deal<'p, S: Split + 'p>(
    pool: &Pool,
    parts: &'p mut S,
    f: impl Fn(usize, S::Part<'p>) + Sync,
) {
    deal_in_turn(pool, parts, |turn, part| f(turn.i, part));
}

/// [`deal`], whose `f` also gets the [`Turn`] of each part.
pub(crate) fn deal_in_turn<'p, S: Split + 'p>(
    pool: &Pool,
    parts: &'p mut S,
    f: impl Fn(Turn, S::Part<'p>) + Sync,
) {
    let shares = Shares {
        n: parts.n_parts(),
        turns: 4 * pool.n_threads(),
        next: AtomicUsize::new(0),
    };
    let parts = &*parts;
    let work = || {
        while let Some(share) = shares.take() {
            for i in share.clone() {
                let turn = shares.turn(i, share.end);
                // SAFETY: `i < n`, and the counter gives every index out once, so the part is seen
                // by this call only.
                f(turn, unsafe { parts.part(i) });
            }
        }
    };
    if shares.n <= 1 {
        work()
    } else {
        pool.run(&work)
    }
}

/// A part's place among those that a thread gets.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    i: usize,
    next: usize,
}

impl Turn {
    /// The distance to the part that the thread probably gets next; 0 for the last part.
    pub(crate) fn skip(self) -> usize {
        self.next - self.i
    }
}

/// Deals parts to threads by a counter. Its functions are not inlined, which keeps the program of
/// boards small.
struct Shares {
    n: usize,
    turns: usize,
    next: AtomicUsize,
}

impl Shares {
    #[inline(never)]
    fn take(&self) -> Option<Range<usize>> {
        let end = |start: usize| start + ((self.n - start) / self.turns).max(1);
        let more = |start| (start < self.n).then(|| end(start));
        let start = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .ok()?;
        Some(start..end(start))
    }

    /// The turn of part `i` of a share that ends at `end`. After the last part of a share the
    /// thread gets the part at the counter, unless another thread takes it first.
    #[inline(never)]
    fn turn(&self, i: usize, end: usize) -> Turn {
        let next = if i + 1 < end {
            i + 1
        } else {
            self.next.load(Ordering::Relaxed)
        };
        Turn {
            i,
            next: if next < self.n { next } else { i },
        }
    }
}

/// Indices without a buffer.
pub(crate) struct Indices(pub(crate) usize);

// SAFETY: the parts are empty.
unsafe impl Split for Indices {
    type Part<'p> = ();

    fn n_parts(&self) -> usize {
        self.0
    }

    unsafe fn part(&self, _: usize) {}
}

/// A buffer `[n, d]`; part i is row i.
pub(crate) struct Rows<'a, T> {
    start: *mut T,
    n: usize,
    d: usize,
    buffer: PhantomData<&'a mut [T]>,
}

// SAFETY: a `Rows` stands for the `&mut [T]` it was made of, whose parts may go to other threads if
// `T` may.
unsafe impl<T: Send> Sync for Rows<'_, T> {}

impl<'a, T> Rows<'a, T> {
    /// Rows of `d` elements.
    ///
    /// # Panics
    /// If `buffer` is not a whole number of rows.
    pub(crate) fn new(buffer: &'a mut [T], d: usize) -> Self {
        assert!(
            d > 0 && buffer.len().is_multiple_of(d),
            "{} elements in rows of {d}",
            buffer.len()
        );
        Self {
            start: buffer.as_mut_ptr(),
            n: buffer.len() / d,
            d,
            buffer: PhantomData,
        }
    }
}

// SAFETY: rows of the same length at multiples of that length do not overlap, and `new` checked
// that all are inside.
unsafe impl<T: Send> Split for Rows<'_, T> {
    type Part<'p>
        = &'p mut [T]
    where
        Self: 'p;

    fn n_parts(&self) -> usize {
        self.n
    }

    unsafe fn part(&self, i: usize) -> &mut [T] {
        debug_assert!(i < self.n);
        // SAFETY: row i < n lies inside the buffer borrowed mutably for 'a, and the caller keeps it
        // to one view.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(i * self.d), self.d) }
    }
}

/// A buffer `[n_blocks, n_rows]`; part t is column t: the blocks of one row.
pub(crate) struct Blocks<'a, T> {
    start: *mut T,
    n_blocks: usize,
    n_rows: usize,
    buffer: PhantomData<&'a mut [T]>,
}

// SAFETY: as for `Rows`.
unsafe impl<T: Send> Sync for Blocks<'_, T> {}

impl<'a, T> Blocks<'a, T> {
    /// `n_blocks × n_rows` elements of `buffer`, which may be longer.
    ///
    /// # Panics
    /// If it is shorter.
    pub(crate) fn new(buffer: &'a mut [T], n_blocks: usize, n_rows: usize) -> Self {
        let n = n_blocks
            .checked_mul(n_rows)
            .expect("the shape of a buffer fits usize");
        assert!(
            n <= buffer.len(),
            "[{n_blocks}, {n_rows}] does not fit {} elements",
            buffer.len()
        );
        Self {
            start: buffer.as_mut_ptr(),
            n_blocks,
            n_rows,
            buffer: PhantomData,
        }
    }
}

/// The blocks of one row of a [`Blocks`].
pub(crate) struct RowBlocks<'p, T> {
    first: *mut T,
    n_blocks: usize,
    stride: usize,
    buffer: PhantomData<&'p mut T>,
}

impl<T> RowBlocks<'_, T> {
    /// Block `b`.
    ///
    /// # Panics
    /// If there is no such block.
    pub(crate) fn block(&mut self, b: usize) -> &mut T {
        assert!(b < self.n_blocks, "block {b} of {}", self.n_blocks);
        // SAFETY: the element (b, t) lies inside the buffer, and this view is the only one of
        // column t.
        unsafe { &mut *self.first.add(b * self.stride) }
    }
}

// SAFETY: columns of a row-major matrix do not share elements, and `new` checked that all are
// inside.
unsafe impl<T: Send> Split for Blocks<'_, T> {
    type Part<'p>
        = RowBlocks<'p, T>
    where
        Self: 'p;

    fn n_parts(&self) -> usize {
        self.n_rows
    }

    unsafe fn part(&self, t: usize) -> RowBlocks<'_, T> {
        debug_assert!(t < self.n_rows);
        // With no blocks at all the pointer is never followed, hence the wrapping addition.
        let first = self.start.wrapping_add(t);
        RowBlocks {
            first,
            n_blocks: self.n_blocks,
            stride: self.n_rows,
            buffer: PhantomData,
        }
    }
}

// SAFETY: the parts of each member are disjoint, so those of the pair are.
unsafe impl<A: Split, B: Split> Split for (A, B) {
    type Part<'p>
        = (A::Part<'p>, B::Part<'p>)
    where
        Self: 'p;

    fn n_parts(&self) -> usize {
        debug_assert_eq!(self.0.n_parts(), self.1.n_parts());
        self.0.n_parts().min(self.1.n_parts())
    }

    unsafe fn part(&self, i: usize) -> Self::Part<'_> {
        // SAFETY: `i` is below both counts, and the caller keeps part i to one view.
        unsafe { (self.0.part(i), self.1.part(i)) }
    }
}

/// A buffer `[n_rows, d_out]`; part i is a strip of columns, all rows high.
pub(crate) struct Columns<'a> {
    start: *mut f32,
    n_rows: usize,
    d_out: usize,
    /// The columns that are dealt.
    columns: Range<usize>,
    strip: usize,
    buffer: PhantomData<&'a mut [f32]>,
}

// SAFETY: as for `Rows`.
unsafe impl Sync for Columns<'_> {}

impl<'a> Columns<'a> {
    /// Strips of `strip` columns of `out`, `[n_rows, d_out]`; the last may be narrower.
    ///
    /// # Panics
    /// If `out` does not have that shape.
    pub(crate) fn new(out: &'a mut [f32], n_rows: usize, strip: usize) -> Self {
        assert!(
            n_rows > 0 && out.len().is_multiple_of(n_rows),
            "{} outputs in {n_rows} rows",
            out.len()
        );
        let d_out = out.len() / n_rows;
        Self {
            start: out.as_mut_ptr(),
            n_rows,
            d_out,
            columns: 0..d_out,
            strip: strip.max(1),
            buffer: PhantomData,
        }
    }

    /// Only strips of these columns.
    ///
    /// # Panics
    /// If the buffer does not have them.
    pub(crate) fn only(self, columns: Range<usize>) -> Self {
        assert!(
            columns.start <= columns.end && columns.end <= self.d_out,
            "columns {columns:?} of {}",
            self.d_out
        );
        Self { columns, ..self }
    }
}

/// A strip of columns.
pub(crate) struct Strip<'p> {
    start: *mut f32,
    n_rows: usize,
    d_out: usize,
    columns: Range<usize>,
    buffer: PhantomData<&'p mut [f32]>,
}

impl Strip<'_> {
    /// The columns of the whole buffer that this strip covers.
    pub(crate) fn columns(&self) -> Range<usize> {
        self.columns.clone()
    }

    /// The rows from `t` on, as a strip of their own.
    ///
    /// # Panics
    /// If `t > n_rows`.
    pub(crate) fn rows_from(&mut self, t: usize) -> Strip<'_> {
        assert!(t <= self.n_rows, "row {t} of {}", self.n_rows);
        let start = self.start.wrapping_add(t * self.d_out);
        Strip {
            start,
            n_rows: self.n_rows - t,
            d_out: self.d_out,
            columns: self.columns.clone(),
            buffer: PhantomData,
        }
    }

    /// Row `t` of the strip, `[columns.len()]`.
    ///
    /// # Panics
    /// If `t >= n_rows`.
    pub(crate) fn row(&mut self, t: usize) -> &mut [f32] {
        assert!(t < self.n_rows, "row {t} of {}", self.n_rows);
        // SAFETY: row t and the columns are inside [n_rows, d_out], and this view is the only one
        // of these columns.
        unsafe {
            let start = self.start.add(t * self.d_out + self.columns.start);
            std::slice::from_raw_parts_mut(start, self.columns.len())
        }
    }
}

// SAFETY: the strips are disjoint ranges of columns inside the shape that `new` checked.
unsafe impl Split for Columns<'_> {
    type Part<'p>
        = Strip<'p>
    where
        Self: 'p;

    fn n_parts(&self) -> usize {
        self.columns.len().div_ceil(self.strip)
    }

    unsafe fn part(&self, i: usize) -> Strip<'_> {
        debug_assert!(i < self.n_parts());
        let start = self.columns.start + i * self.strip;
        let columns = start..self.columns.end.min(start + self.strip);
        Strip {
            start: self.start,
            n_rows: self.n_rows,
            d_out: self.d_out,
            columns,
            buffer: PhantomData,
        }
    }
}

/// A buffer `[n_rows, d_out]`; a part is a tile of rows of a strip of columns. The strips of a tile
/// come one after the other.
pub(crate) struct Grid<'a> {
    columns: Columns<'a>,
    tile: usize,
}

impl<'a> Grid<'a> {
    /// Tiles of `tile` rows and `strip` columns; the last ones may be smaller.
    ///
    /// # Panics
    /// If `out` does not have the shape.
    pub(crate) fn new(out: &'a mut [f32], n_rows: usize, tile: usize, strip: usize) -> Self {
        Self {
            columns: Columns::new(out, n_rows, strip),
            tile: tile.max(1),
        }
    }
}

// SAFETY: tiles are disjoint ranges of rows of strips, which are disjoint ranges of columns.
unsafe impl Split for Grid<'_> {
    type Part<'p>
        = Strip<'p>
    where
        Self: 'p;

    fn n_parts(&self) -> usize {
        self.columns.n_rows.div_ceil(self.tile) * self.columns.n_parts()
    }

    unsafe fn part(&self, i: usize) -> Strip<'_> {
        let all = &self.columns;
        let n_strips = all.n_parts();
        let first = i / n_strips * self.tile;
        debug_assert!(first < all.n_rows);
        // SAFETY: `i % n_strips` is a strip, and the caller keeps its rows of this tile to one
        // view.
        let strip = unsafe { all.part(i % n_strips) };
        // The pointer is followed only inside the rows that are left.
        let start = strip.start.wrapping_add(first * all.d_out);
        Strip {
            start,
            n_rows: self.tile.min(all.n_rows - first),
            ..strip
        }
    }
}

/// A buffer `[n_rows, d_out]` whose rows fall into groups; a part is a strip of columns of the rows
/// of one group. The strips of a group come one after the other.
pub(crate) struct Bands<'a> {
    columns: Columns<'a>,
    bounds: &'a [usize],
}

impl<'a> Bands<'a> {
    /// Strips of `strip` columns of groups of rows: group `g` has the rows from `bounds[g] -
    /// bounds[0]` to `bounds[g + 1] - bounds[0]`.
    ///
    /// # Panics
    /// If the bounds are not in order, or `out` does not have as many rows as they say.
    pub(crate) fn new(out: &'a mut [f32], bounds: &'a [usize], strip: usize) -> Self {
        assert!(
            bounds.len() > 1 && bounds.is_sorted(),
            "bounds of groups in order"
        );
        let n_rows = bounds[bounds.len() - 1] - bounds[0];
        Self {
            columns: Columns::new(out, n_rows, strip),
            bounds,
        }
    }

    /// Only some of the columns, as [`Columns::only`].
    pub(crate) fn only(self, columns: Range<usize>) -> Self {
        Self {
            columns: self.columns.only(columns),
            ..self
        }
    }

    fn rows(&self, g: usize) -> Range<usize> {
        self.bounds[g] - self.bounds[0]..self.bounds[g + 1] - self.bounds[0]
    }
}

/// A strip of columns of the rows of a group.
pub(crate) struct Band<'p> {
    pub(crate) group: usize,
    /// The rows of the group, counted in the whole buffer.
    pub(crate) rows: Range<usize>,
    /// Row 0 of the strip is `rows.start`.
    pub(crate) strip: Strip<'p>,
}

// SAFETY: groups are disjoint ranges of rows of strips, which are disjoint ranges of columns; that
// the bounds are in order and that the last is the height of the buffer was checked by `new`.
unsafe impl Split for Bands<'_> {
    type Part<'p>
        = Band<'p>
    where
        Self: 'p;

    fn n_parts(&self) -> usize {
        (self.bounds.len() - 1) * self.columns.n_parts()
    }

    unsafe fn part(&self, i: usize) -> Band<'_> {
        let all = &self.columns;
        let n_strips = all.n_parts();
        let group = i / n_strips;
        let rows = self.rows(group);
        // SAFETY: `i % n_strips` is a strip, and the caller keeps its rows of this group to one
        // view.
        let strip = unsafe { all.part(i % n_strips) };
        // The pointer is followed only inside the rows of the group, and not at all where it has
        // none.
        let start = strip.start.wrapping_add(rows.start * all.d_out);
        Band {
            group,
            strip: Strip {
                start,
                n_rows: rows.len(),
                ..strip
            },
            rows,
        }
    }
}

/// Several buffers one after the other; a part is (index of the buffer, part of it).
pub(crate) struct Chain<S, const N: usize>(pub(crate) [Option<S>; N]);

// SAFETY: each index belongs to one part of one member.
unsafe impl<S: Split, const N: usize> Split for Chain<S, N> {
    type Part<'p>
        = (usize, S::Part<'p>)
    where
        Self: 'p;

    fn n_parts(&self) -> usize {
        self.0.iter().flatten().map(S::n_parts).sum()
    }

    unsafe fn part(&self, mut i: usize) -> Self::Part<'_> {
        for (k, member) in self.0.iter().enumerate() {
            let Some(member) = member else { continue };
            if i < member.n_parts() {
                // SAFETY: `i` is a part of this member, and the caller keeps it to one view.
                return (k, unsafe { member.part(i) });
            }
            i -= member.n_parts();
        }
        unreachable!("the caller asked for a part below n_parts")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroUsize;

    fn pool() -> Pool {
        Pool::new(NonZeroUsize::new(3).unwrap())
    }

    #[test]
    fn every_row_is_dealt_once() {
        let mut buffer = vec![0u32; 7 * 5];
        deal(&pool(), &mut Rows::new(&mut buffer, 5), |i, row| {
            row.iter_mut().for_each(|x| *x += i as u32 + 1)
        });
        assert!(
            buffer
                .iter()
                .enumerate()
                .all(|(k, &x)| x == k as u32 / 5 + 1)
        );
    }

    #[test]
    fn strips_cover_every_column_once() {
        for d_out in [1, 15, 16, 17, 50] {
            let mut out = vec![0f32; 3 * d_out];
            deal(
                &pool(),
                &mut Columns::new(&mut out, 3, 16),
                |_, mut strip| {
                    for t in 0..3 {
                        let columns = strip.columns();
                        strip
                            .row(t)
                            .iter_mut()
                            .zip(columns)
                            .for_each(|(x, c)| *x += (t * 100 + c) as f32);
                    }
                },
            );
            assert!(
                out.iter()
                    .enumerate()
                    .all(|(k, &x)| x == (k / d_out * 100 + k % d_out) as f32)
            );
        }
    }

    #[test]
    fn strips_of_some_columns_leave_the_others_alone() {
        for columns in [0..0, 0..50, 3..4, 16..50, 7..39] {
            let mut out = vec![0f32; 3 * 50];
            deal(
                &pool(),
                &mut Columns::new(&mut out, 3, 16).only(columns.clone()),
                |_, mut strip| {
                    (0..3).for_each(|t| strip.row(t).iter_mut().for_each(|x| *x += 1.0));
                },
            );
            assert!(
                out.iter()
                    .enumerate()
                    .all(|(k, &x)| x == f32::from(columns.contains(&(k % 50))))
            );
        }
    }

    #[test]
    fn tiles_cover_every_element_once() {
        for (tile, strip) in [(1, 1), (2, 3), (3, 7), (5, 8)] {
            let mut out = vec![0f32; 5 * 7];
            deal(
                &pool(),
                &mut Grid::new(&mut out, 5, tile, strip),
                |i, mut part| {
                    let first = i / 7usize.div_ceil(strip) * tile;
                    for t in 0..tile.min(5 - first) {
                        let columns = part.columns();
                        part.row(t)
                            .iter_mut()
                            .zip(columns)
                            .for_each(|(x, c)| *x += ((first + t) * 100 + c) as f32);
                    }
                },
            );
            assert!(
                out.iter()
                    .enumerate()
                    .all(|(k, &x)| x == (k / 7 * 100 + k % 7) as f32),
                "{tile} {strip}"
            );
        }
    }

    #[test]
    fn groups_of_rows_cover_every_element_once() {
        for bounds in [&[3, 8][..], &[0, 1, 5], &[7, 7, 9, 9, 10, 12]] {
            let mut out = vec![0f32; 5 * 7];
            deal(
                &pool(),
                &mut Bands::new(&mut out, bounds, 3),
                |_,
                 Band {
                     group,
                     rows,
                     mut strip,
                 }| {
                    assert_eq!(
                        rows,
                        bounds[group] - bounds[0]..bounds[group + 1] - bounds[0]
                    );
                    for t in rows.clone() {
                        let columns = strip.columns();
                        let row = strip.row(t - rows.start);
                        row.iter_mut()
                            .zip(columns)
                            .for_each(|(x, c)| *x += (t * 100 + c) as f32);
                    }
                },
            );
            assert!(
                out.iter()
                    .enumerate()
                    .all(|(k, &x)| x == (k / 7 * 100 + k % 7) as f32),
                "{bounds:?}"
            );
        }
    }

    #[test]
    #[should_panic(expected = "in order")]
    fn groups_out_of_order_are_refused() {
        Bands::new(&mut [0.0; 20], &[0, 4, 3, 5], 2);
    }

    #[test]
    fn blocks_of_a_row_are_strided() {
        let mut buffer = vec![0; 4 * 3 + 2];
        deal(
            &pool(),
            &mut Blocks::new(&mut buffer, 4, 3),
            |t, mut row| (0..4).for_each(|b| *row.block(b) = 10 * t + b),
        );
        assert_eq!(buffer, [0, 10, 20, 1, 11, 21, 2, 12, 22, 3, 13, 23, 0, 0]);
    }

    #[test]
    fn a_chain_deals_all_its_members() {
        let (mut a, mut b) = (vec![0f32; 40], vec![0f32; 17]);
        let mut chain = Chain([
            Some(Columns::new(&mut a, 2, 16)),
            None,
            Some(Columns::new(&mut b, 1, 16)),
        ]);
        assert_eq!(chain.n_parts(), 4);
        deal(&pool(), &mut chain, |_, (k, mut strip)| {
            strip.row(0).fill(k as f32 + 1.0)
        });
        assert!(a[..20].iter().all(|&x| x == 1.0) && a[20..].iter().all(|&x| x == 0.0));
        assert!(b.iter().all(|&x| x == 3.0));
    }
}
