//! `check`: whether the kernels and collectives compute what they should, on the GPU of this machine.
//!
//! Kernels are run on small arrays of odd sizes and held against definitions computed on the host in f64, gradients
//! against central differences of the forward kernels, and 16-bit variants against the f32 ones.

mod decoder;
mod difference;
mod flat;
mod numbers;
mod operation;
mod perceptron;
mod products;
mod report;

use clap::Args;

use crate::error::Error;
use crate::gpu::Gpu;
use crate::launch::Rank;
use report::Report;

/// `gputrace workload check`.
#[derive(Args, Debug, Clone)]
pub(crate) struct CheckOptions {
    /// Ranks that check collectives; the first checks the kernels as well
    #[arg(long, default_value = "2", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) ranks: u32,
    /// Print one JSON object instead of a line a check
    #[arg(long)]
    pub(crate) json: bool,
}

/// Runs all checks; the exit status is 1 where one failed.
pub(crate) fn run(options: &CheckOptions, rank: &Rank) -> Result<i32, Error> {
    let gpu = Gpu::open(rank.local_rank)?;
    let mut report = Report::new(&gpu.name, rank.ranks, options.json);
    if rank.rank == 0 {
        perceptron::check(&gpu, &mut report)?;
        decoder::check(&gpu, &mut report)?;
        flat::check(&gpu, &mut report)?;
        products::check(&gpu, &mut report)?;
    }
    if rank.rank == 0 {
        report.print_end();
    }
    Ok(report.status())
}
