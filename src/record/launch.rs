//! Which launch a recorder belongs to: recorders that srun, mpirun or torchrun started together share a folder.

/// A launch, and this recorder's place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// What all recorders of the launch have in common, and no other.
    pub id: String,
    /// This one's number.
    pub rank: Option<u32>,
    /// How many there are.
    pub size: Option<u32>,
}

/// How a launcher tells: variables of its id (all must be there), of rank and of size.
struct Launcher {
    name: &'static str,
    id: &'static [&'static str],
    rank: &'static str,
    size: &'static [&'static str],
}

const LAUNCHERS: &[Launcher] = &[
    Launcher {
        // Every job without an id of its own is called "none": the port is its own.
        name: "torchelastic",
        id: &["TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"],
        rank: "RANK",
        size: &["WORLD_SIZE"],
    },
    Launcher {
        name: "mpi",
        id: &["PMIX_NAMESPACE"],
        rank: "OMPI_COMM_WORLD_RANK",
        size: &["OMPI_COMM_WORLD_SIZE"],
    },
    Launcher {
        name: "mpi",
        id: &["OMPI_MCA_ess_base_jobid"],
        rank: "OMPI_COMM_WORLD_RANK",
        size: &["OMPI_COMM_WORLD_SIZE"],
    },
    Launcher {
        name: "slurm",
        id: &["SLURM_JOB_ID", "SLURM_STEP_ID"],
        rank: "SLURM_PROCID",
        size: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
    },
];

/// Ranks and sizes for --join, where the launcher has no id.
const PLACES: [[&str; 2]; 4] = [
    ["RANK", "WORLD_SIZE"],
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"],
    ["PMI_RANK", "PMI_SIZE"],
    ["SLURM_PROCID", "SLURM_NTASKS"],
];

impl Launch {
    /// The launch that `join` names, else that of the environment. A launch of one is none: there is nobody to share with.
    pub fn of(join: Option<&str>, variable: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name: &str| variable(name)?.trim().parse::<u32>().ok();
        if let Some(join) = join {
            let place = PLACES.iter().find(|[rank, _]| number(rank).is_some());
            return Some(Self {
                id: format!("join {join}"),
                rank: place.and_then(|[rank, _]| number(rank)),
                size: place.and_then(|[_, size]| number(size)),
            });
        }
        LAUNCHERS.iter().find_map(|launcher| {
            let parts: Option<Vec<String>> = launcher.id.iter().map(|name| variable(name)).collect();
            let launch = Self {
                id: format!("{} {}", launcher.name, parts?.join(" ")),
                rank: Some(number(launcher.rank)?),
                size: launcher.size.iter().find_map(|name| number(name)),
            };
            launch.size.is_some_and(|size| size > 1).then_some(launch)
        })
    }

    /// The launch's id as part of a file's name.
    pub fn file_name(&self) -> String {
        let clean = |c: char| {
            if c.is_ascii_alphanumeric() || c == '.' {
                c
            } else {
                '-'
            }
        };
        self.id.chars().map(clean).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(join: Option<&str>, variables: &'static [(&'static str, &'static str)]) -> Option<Launch> {
        Launch::of(join, &|name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn tasks_of_a_step_are_one_launch() {
        let launch = of(
            None,
            &[
                ("SLURM_JOB_ID", "77"),
                ("SLURM_STEP_ID", "2"),
                ("SLURM_PROCID", "3"),
                ("SLURM_STEP_NUM_TASKS", "8"),
                ("SLURM_NTASKS", "16"),
            ],
        );
        let expected = Launch {
            id: "slurm 77 2".to_owned(),
            rank: Some(3),
            size: Some(8),
        };
        assert_eq!(launch, Some(expected));
    }

    #[test]
    fn a_batch_script_or_a_shell_on_a_node_is_no_launch() {
        assert_eq!(of(None, &[("SLURM_JOB_ID", "77"), ("SLURM_NTASKS", "16")]), None);
        let shell = &[
            ("SLURM_JOB_ID", "77"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "0"),
            ("SLURM_STEP_NUM_TASKS", "1"),
        ];
        assert_eq!(of(None, shell), None);
    }

    #[test]
    fn torchruns_workers_are_known_by_their_port() {
        let launch = of(
            None,
            &[
                ("TORCHELASTIC_RUN_ID", "none"),
                ("MASTER_ADDR", "localhost"),
                ("MASTER_PORT", "29500"),
                ("RANK", "1"),
                ("WORLD_SIZE", "2"),
            ],
        );
        let launch = launch.expect("a launch");
        assert_eq!(launch.id, "torchelastic none localhost 29500");
        assert_eq!(launch.file_name(), "torchelastic-none-localhost-29500");
    }

    #[test]
    fn a_name_joins_whatever_started_it() {
        let launch = of(Some("mine"), &[("PMI_RANK", "0"), ("PMI_SIZE", "4")]).expect("a launch");
        assert_eq!((launch.rank, launch.size), (Some(0), Some(4)));
        assert_eq!(of(Some("mine"), &[]).map(|launch| launch.size), Some(None));
    }
}
