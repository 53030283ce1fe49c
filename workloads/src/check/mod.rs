//! `check`: whether the kernels and collectives compute what they should, on the GPU of this machine.
//!
//! Kernels are run on small arrays of odd sizes and held against definitions computed on the host in f64, gradients
//! against central differences of the forward kernels, and 16-bit variants against the f32 ones. The same for the units
//! of the networks, and for those that ranks divide among them against the undivided.

mod chain;
mod collectives;
mod decoder;
mod difference;
mod flat;
mod numbers;
mod operation;
mod perceptron;
mod products;
mod report;
mod shards;
mod units;
mod values;

use std::rc::Rc;

use clap::Args;

use crate::comm::{self, Communicator};
use crate::error::Error;
use crate::gpu::Gpu;
use crate::rank::Rank;
use crate::store::Store;
use report::Report;

/// `gputrace workload check`.
#[derive(Args, Debug, Clone)]
pub(crate) struct CheckOptions {
    /// Ranks that check collectives and divided layers; the first checks the kernels as well
    #[arg(long, default_value = "2", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) ranks: u32,
    /// Print one JSON object instead of a line a check
    #[arg(long)]
    pub(crate) json: bool,
}

/// Runs all checks; the exit status is 1 where one failed, on rank 0, which tells for all.
pub(crate) fn run(options: &CheckOptions, rank: &Rank, store: &Store) -> Result<i32, Error> {
    let gpu = Gpu::open(rank.local_rank)?;
    let mut report = Report::new(&gpu.name, rank.ranks);
    if rank.rank == 0 {
        perceptron::check(&gpu, &mut report)?;
        decoder::check(&gpu, &mut report)?;
        flat::check(&gpu, &mut report)?;
        products::check(&gpu, &mut report)?;
        units::check(&gpu, &mut report)?;
        if !options.json {
            report.print();
        }
    }
    let id = store.share_id(comm::unique_id)?;
    let communicator = Rc::new(Communicator::new(id, rank.rank, rank.ranks, "check")?);
    collectives::check(&gpu, &mut report, &communicator)?;
    shards::check(&gpu, &mut report, &communicator)?;
    let Some(reports) = store.gather(report.to_lines().as_bytes())? else {
        return Ok(0);
    };
    for lines in reports.iter().skip(1) {
        report.add_lines(&String::from_utf8_lossy(lines))?;
    }
    if options.json {
        println!("{}", report.as_json());
    } else {
        report.print_end();
    }
    Ok(report.status())
}
