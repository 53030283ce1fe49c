//! Which rank each process is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::environment::Environment;
use super::processes::Found;
use super::rows::Import;
use crate::rank_names::rank_in_name;

/// A rank and how it was known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rank {
    pub(super) rank: Option<u32>,
    pub(super) world_size: Option<u32>,
    pub(super) local_rank: Option<u32>,
    pub(super) source: Option<String>,
}

/// Rank, world size and local rank variables: torchrun, Open MPI, MPICH and Intel MPI, Slurm.
const LAUNCHERS: [[&str; 3]; 4] = [
    ["RANK", "WORLD_SIZE", "LOCAL_RANK"],
    [
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
    ],
    ["PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK"],
    ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"],
];

/// Finds a rank for each process, in the order of the processes. Those that ran nothing on a device (launchers, data
/// loaders) are no ranks, unless the file says that they are.
pub(super) fn find(import: &mut Import<'_>, environment: &Environment, path: &Path) -> Vec<Rank> {
    let told = told(import);
    let list = import.processes.list();
    let mut ranks: Vec<Rank> = list
        .iter()
        .map(|found| told.get(&found.key).cloned().unwrap_or_default())
        .collect();
    let numbers: Vec<u32> = ranks.iter().filter_map(|rank| rank.rank).collect();
    let distinct: BTreeSet<u32> = numbers.iter().copied().collect();
    let workers: Vec<usize> = (0..list.len())
        .filter(|&place| list[place].has_device_work())
        .collect();
    if distinct.len() < numbers.len() {
        // Several jobs in one file: their ranks can't tell its processes apart.
        ranks = vec![Rank::default(); list.len()];
        import
            .notes
            .push("several of its processes say that they are the same rank".to_owned());
        in_order(import, &workers, &mut ranks);
    } else if !numbers.is_empty() {
        let without = workers
            .iter()
            .filter(|&&place| ranks[place].rank.is_none())
            .count();
        if without > 0 {
            import.losses.lose(
                "processes with device work whose rank the file does not say, though it says that of others"
                    .to_owned(),
                Some(without as u64),
                "matching of those processes' collectives",
            );
        }
    } else if let [only] = *workers {
        ranks[only] = of_lone_process(environment, path);
    } else if workers.len() > 1 {
        in_order(import, &workers, &mut ranks);
    }
    ranks
}

/// The ranks that the file itself says, by process: MPI's table, or the names that Nsight Systems gives MPI's threads.
fn told(import: &Import<'_>) -> BTreeMap<i64, Rank> {
    let mut told: BTreeMap<i64, Rank> = BTreeMap::new();
    let database = import.database;
    let mut tell = |global: i64, rank: i64, source: &str| {
        if let Ok(rank) = u32::try_from(rank) {
            told.entry(global >> 24).or_insert_with(|| Rank {
                rank: Some(rank),
                source: Some(source.to_owned()),
                ..Rank::default()
            });
        }
    };
    // A damaged table says what it can; ranks that are missing then are counted with the processes.
    drop(database.each("MPI_RANKS", &["globalTid", "rank"], |cells| {
        if let (Ok(Some(global)), Ok(Some(rank))) = (cells.integer(0), cells.integer(1)) {
            tell(global, rank, "MPI_RANKS");
        }
    }));
    for &(global, name) in &import.thread_names {
        let rank = import.names.get(name).strip_prefix("MPI Rank ");
        if let Some(Ok(rank)) = rank.map(str::parse) {
            tell(global, rank, "NVTX thread name");
        }
    }
    let mut ranks = 0;
    drop(database.each("MPI_COMMUNICATORS", &["size"], |cells| {
        ranks = ranks.max(cells.integer(0).ok().flatten().unwrap_or(0));
    }));
    if let Some(ranks) = u32::try_from(ranks).ok().filter(|&ranks| ranks > 0) {
        for rank in told.values_mut() {
            rank.world_size = Some(ranks);
        }
    }
    told
}

/// The rank of the only process: by its launcher's variables, or by the file's name.
fn of_lone_process(environment: &Environment, path: &Path) -> Rank {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let by_name = rank_in_name(&name).map(|rank| Rank {
        rank: Some(rank),
        source: Some("file name".to_owned()),
        ..Rank::default()
    });
    let by_environment = LAUNCHERS.iter().find_map(|[rank, size, local]| {
        Some(Rank {
            rank: Some(environment.number(rank)?),
            world_size: environment.number(size),
            local_rank: environment.number(local),
            source: Some((*rank).to_owned()),
        })
    });
    match (by_environment, by_name) {
        // A job of one is often only the shell that the launcher was started from: the name knows better.
        (
            Some(Rank {
                world_size: Some(1), ..
            }),
            Some(by_name),
        ) => by_name,
        (Some(by_environment), _) => by_environment,
        (None, by_name) => by_name.unwrap_or_default(),
    }
}

/// Numbers the processes in the order of their ids, for want of anything better.
fn in_order(import: &mut Import<'_>, workers: &[usize], ranks: &mut [Rank]) {
    let list = import.processes.list();
    let mut order = workers.to_vec();
    order.sort_by_key(|&place| (Found::pid(&list[place]), list[place].key));
    for (number, place) in order.into_iter().enumerate() {
        ranks[place] = Rank {
            rank: u32::try_from(number).ok(),
            world_size: u32::try_from(workers.len()).ok(),
            local_rank: None,
            source: Some("order of process ids".to_owned()),
        };
    }
    import.notes.push(
        "it does not say its processes' ranks: they are numbered in the order of their process ids"
            .to_owned(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_of_one_yields_to_the_name() {
        let mut environment = Environment::default();
        for (name, value) in [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1")] {
            environment.variables.insert(name.to_owned(), value.to_owned());
        }
        let rank = of_lone_process(&environment, Path::new("/data/rank7.sqlite"));
        assert_eq!((rank.rank, rank.source.as_deref()), (Some(7), Some("file name")));
        environment
            .variables
            .insert("SLURM_NTASKS".to_owned(), "8".to_owned());
        let rank = of_lone_process(&environment, Path::new("/data/rank7.sqlite"));
        assert_eq!((rank.rank, rank.world_size), (Some(0), Some(8)));
    }
}
