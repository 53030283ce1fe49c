//! Which rank a process is, from the variables of its launcher.

/// A rank and how it was known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RankInfo {
    pub(crate) rank: Option<u32>,
    pub(crate) world_size: Option<u32>,
    pub(crate) local_rank: Option<u32>,
    pub(crate) source: Option<&'static str>,
}

/// Rank, world size and local rank variables: torchrun, Open MPI, MPICH and Intel MPI, Slurm.
const LAUNCHERS: [[&str; 3]; 4] = [
    ["RANK", "WORLD_SIZE", "LOCAL_RANK"],
    [
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
    ],
    ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"],
    ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"],
];

impl RankInfo {
    /// From the first launcher whose variables name a rank.
    pub(crate) fn from_environment(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let number = |name: &str| variable(name)?.trim().parse().ok();
        for [rank_name, size_name, local_name] in LAUNCHERS {
            if let Some(rank) = number(rank_name) {
                return Self {
                    rank: Some(rank),
                    world_size: number(size_name),
                    local_rank: number(local_name),
                    source: Some(rank_name),
                };
            }
        }
        Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &'static [(&'static str, &'static str)]) -> RankInfo {
        RankInfo::from_environment(&|name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn torchrun_comes_before_slurm() {
        let info = of(&[
            ("SLURM_PROCID", "9"),
            ("RANK", "3"),
            ("WORLD_SIZE", "8"),
            ("LOCAL_RANK", "1"),
        ]);
        assert_eq!(
            (info.rank, info.world_size, info.local_rank, info.source),
            (Some(3), Some(8), Some(1), Some("RANK"))
        );
    }

    #[test]
    fn a_variable_that_is_no_number_is_no_rank() {
        assert_eq!(of(&[("RANK", "first")]), RankInfo::default());
    }
}
