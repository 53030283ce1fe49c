//! What a unit does where its sharded part begins and ends: gather rows, sum products. Nothing on a single rank.

use std::ops::Range;

use super::{Pass, Shard, TensorParallel};
use crate::error::Error;

/// The edges between what every rank computes alike, or for its rows, and what is divided over the ranks.
///
/// Rows of the microbatch are in order of the ranks: with sequence parallelism, rank r has the r-th of equally long
/// runs of them outside the sharded parts, and all of them inside.
pub(super) struct Edges {
    parallel: Option<TensorParallel>,
}

impl Edges {
    pub(super) fn new(parallel: Option<TensorParallel>) -> Self {
        Self { parallel }
    }

    /// This rank's share of what is divided.
    pub(super) fn shard(&self) -> Shard {
        self.parallel.as_ref().map_or(Shard::WHOLE, TensorParallel::shard)
    }

    /// Tensor parallelism, if rows are divided outside the sharded parts.
    pub(super) fn sequence(&self) -> Option<&TensorParallel> {
        self.parallel.as_ref().filter(|parallel| parallel.sequence())
    }

    /// Which of `rows` rows this rank has outside the sharded parts.
    pub(super) fn own_rows(&self, rows: usize) -> Range<usize> {
        self.sequence()
            .map_or(0..rows, |parallel| parallel.shard().range(rows))
    }

    /// Elements of all rows of something that is `columns` wide, if they are not the rank's own: what memory must be
    /// there for [`Self::gather`] and [`Self::sum`].
    pub(super) fn gathered(&self, rows: usize, columns: usize) -> usize {
        self.sequence().map_or(0, |_| rows * columns)
    }

    /// Where all rows are of what was gathered from `own` to `all`.
    pub(super) fn all(&self, [own, all]: [u64; 2]) -> u64 {
        if self.sequence().is_some() { all } else { own }
    }

    /// Where all rows of what each rank has its rows of at `own` are: gathered to `all`, if they are divided.
    pub(super) fn gather(&self, pass: &Pass<'_>, [own, all]: [u64; 2], columns: usize) -> Result<u64, Error> {
        let Some(parallel) = self.sequence() else {
            return Ok(own);
        };
        let count = self.own_rows(pass.rows).len() * columns;
        parallel.all_gather(pass.gpu, pass.data_type, [own, all], count)?;
        Ok(all)
    }

    /// Sums what `product` writes over the ranks, and leaves this rank's rows at `own`. The product, of all rows, goes
    /// to the address that it is given: `all` if rows are divided, else `own`.
    pub(super) fn sum(
        &self,
        pass: &Pass<'_>,
        [own, all]: [u64; 2],
        columns: usize,
        product: impl FnOnce(u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if let Some(parallel) = self.sequence() {
            product(all)?;
            let count = self.own_rows(pass.rows).len() * columns;
            return parallel.reduce_scatter(pass.gpu, pass.data_type, [all, own], count);
        }
        product(own)?;
        match &self.parallel {
            Some(parallel) => parallel.all_reduce(pass.gpu, pass.data_type, own, pass.rows * columns),
            None => Ok(()),
        }
    }
}
