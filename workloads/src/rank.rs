//! Who a process is among the ranks, as those who start them tell it: torchrun, mpirun, srun, or our own launcher.

use crate::error::Error;

/// The port of rank 0's store, as our launcher tells it.
pub(crate) const STORE_PORT: &str = "WORKLOAD_STORE_PORT";
/// The socket that rank 0 listens on, which it inherits from our launcher.
pub(crate) const LISTENER: &str = "WORKLOAD_STORE_LISTENER";
/// Which run a rank belongs to, where our launcher started it.
pub(crate) const RUN: &str = "WORKLOAD_RUN";
/// The port where nothing tells one: the one after torchrun's usual 29500.
const USUAL_PORT: u16 = 29_501;

/// Who a process is among the ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rank {
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    /// Which rank on this host, from 0: the GPU it uses.
    pub(crate) local_rank: u32,
    /// Ranks on this host.
    pub(crate) local_ranks: u32,
    /// Which host this is, and how many there are.
    pub(crate) node: u32,
    pub(crate) nodes: u32,
    /// Where rank 0 listens for the others.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Which run this is, as far as whoever started it tells; empty when nothing does.
    pub(crate) run: String,
    /// The socket that rank 0 listens on, where it inherits one.
    pub(crate) listener: Option<i32>,
    /// Whether our launcher started it, and tells of ranks that die.
    pub(crate) launched: bool,
    /// Whether what all ranks write comes to one place, on whatever host they are.
    pub(crate) outputs_joined: bool,
}

/// What a starter of ranks calls things. The first name that is set counts.
struct Starter {
    name: &'static str,
    rank: &'static str,
    ranks: &'static [&'static str],
    local_rank: &'static [&'static str],
    local_ranks: &'static [&'static str],
    node: &'static [&'static str],
    nodes: &'static [&'static str],
    /// What tells this run from others.
    run: &'static [&'static str],
    outputs_joined: bool,
}

/// In the order in which they count: torchrun under srun is torchrun, mpirun under Slurm is mpirun.
const STARTERS: [Starter; 4] = [
    Starter {
        name: "torchrun",
        rank: "RANK",
        ranks: &["WORLD_SIZE"],
        local_rank: &["LOCAL_RANK"],
        local_ranks: &["LOCAL_WORLD_SIZE"],
        node: &["GROUP_RANK"],
        nodes: &["GROUP_WORLD_SIZE"],
        run: &[RUN, "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"],
        outputs_joined: false,
    },
    Starter {
        name: "Open MPI",
        rank: "OMPI_COMM_WORLD_RANK",
        ranks: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: &["OMPI_COMM_WORLD_LOCAL_RANK"],
        local_ranks: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
        node: &[],
        nodes: &[],
        run: &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"],
        outputs_joined: true,
    },
    // MPICH and Intel MPI. srun --mpi=pmi2 sets the first two as well, and then Slurm's own say the rest.
    Starter {
        name: "MPI",
        rank: "PMI_RANK",
        ranks: &["PMI_SIZE"],
        local_rank: &["MPI_LOCALRANKID", "SLURM_LOCALID"],
        local_ranks: &["MPI_LOCALNRANKS"],
        node: &["SLURM_NODEID"],
        nodes: &["SLURM_STEP_NUM_NODES", "SLURM_NNODES"],
        run: &["SLURM_JOB_ID", "SLURM_STEP_ID"],
        outputs_joined: true,
    },
    Starter {
        name: "Slurm",
        rank: "SLURM_PROCID",
        ranks: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"],
        local_rank: &["SLURM_LOCALID"],
        local_ranks: &[],
        node: &["SLURM_NODEID"],
        nodes: &["SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"],
        run: &["SLURM_JOB_ID", "SLURM_STEP_ID"],
        outputs_joined: true,
    },
];

/// The environment, looked up by name.
type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Rank {
    /// From the environment; `None` where nothing says that this process is a rank.
    pub(crate) fn from_environment(variable: Variables<'_>) -> Result<Option<Self>, Error> {
        let Some(starter) = STARTERS.iter().find(|starter| variable(starter.rank).is_some()) else {
            return Ok(None);
        };
        if starter.name == "Slurm" && is_batch_script(variable) {
            return Ok(None);
        }
        let number = |names: &[&str]| number(variable, names);
        let (Some(rank), ranks_name) = (number(&[starter.rank])?, starter.ranks[0]) else {
            return Ok(None);
        };
        let Some(ranks) = number(starter.ranks)? else {
            return Err(Error::new(format!(
                "{} is set but {ranks_name} is not: set both for a rank, or neither",
                starter.rank
            )));
        };
        if rank >= ranks {
            return Err(Error::new(format!(
                "{}={rank} with {ranks_name}={ranks}: ranks are numbered 0 to {}",
                starter.rank,
                i64::from(ranks) - 1
            )));
        }
        let nodes = number(starter.nodes)?;
        let node = number(starter.node)?;
        let local_ranks = match number(starter.local_ranks)? {
            None => slurm_tasks_here(variable, node),
            told => told,
        };
        let local_ranks = local_ranks
            .filter(|local| (1..=ranks).contains(local))
            .unwrap_or_else(|| ranks.div_ceil(nodes.unwrap_or(1).max(1)));
        let local_rank = number(starter.local_rank)?.unwrap_or(rank % local_ranks);
        let nodes = nodes.unwrap_or_else(|| ranks.div_ceil(local_ranks)).max(1);
        let launcher_run = variable(RUN);
        let run: Vec<String> = starter.run.iter().filter_map(|name| variable(name)).collect();
        let run = run.join(".");
        Ok(Some(Self {
            rank,
            ranks,
            local_rank,
            local_ranks,
            node: node.unwrap_or(rank / local_ranks),
            nodes,
            host: host(starter, variable, nodes)?,
            port: port(variable, &run)?,
            run,
            listener: number(&[LISTENER])?.map(u32::cast_signed),
            launched: launcher_run.is_some(),
            outputs_joined: starter.outputs_joined,
        }))
    }
}

/// A number by the first of these names that is set.
fn number(variable: Variables<'_>, names: &[&str]) -> Result<Option<u32>, Error> {
    let Some((name, text)) = names.iter().find_map(|name| Some((name, variable(name)?))) else {
        return Ok(None);
    };
    text.trim()
        .parse()
        .map(Some)
        .map_err(|_| Error::new(format!("{name}={text}: not a whole number")))
}

/// A batch script has the variables of a first task, but is none: srun starts those, and tells them their step.
fn is_batch_script(variable: Variables<'_>) -> bool {
    variable("ENVIRONMENT").as_deref() == Some("BATCH")
        && ["SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NUM_TASKS"]
            .iter()
            .all(|name| variable(name).is_none())
}

/// Tasks on this node by "2(x3),1": so many on each of three nodes, then so many on the next.
fn slurm_tasks_here(variable: Variables<'_>, node: Option<u32>) -> Option<u32> {
    let list = variable("SLURM_STEP_TASKS_PER_NODE").or_else(|| variable("SLURM_TASKS_PER_NODE"))?;
    let mut nodes_before = 0;
    for part in list.split(',') {
        let (tasks, times) = match part.split_once("(x") {
            Some((tasks, times)) => (tasks, times.strip_suffix(')')?.parse().ok()?),
            None => (part, 1u32),
        };
        nodes_before += times;
        if node? < nodes_before {
            return tasks.parse().ok();
        }
    }
    None
}

/// Where rank 0 is.
fn host(starter: &Starter, variable: Variables<'_>, nodes: u32) -> Result<String, Error> {
    let told = variable("MASTER_ADDR").filter(|host| !host.is_empty());
    if let Some(host) = told {
        return Ok(host);
    }
    if nodes == 1 {
        return Ok("127.0.0.1".to_owned());
    }
    ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"]
        .iter()
        .find_map(|name| first_host(&variable(name)?))
        .ok_or_else(|| {
            Error::new(format!(
                "{} started ranks on {nodes} hosts, but MASTER_ADDR is not set: set it to the name of rank 0's host \
                 for all ranks",
                starter.name
            ))
        })
}

/// The first host of Slurm's list: `node[01-03,7],gpu5` begins with `node01`.
fn first_host(list: &str) -> Option<String> {
    let mut host = String::new();
    let mut rest = list.trim();
    loop {
        let end = rest.find(['[', ',']).unwrap_or(rest.len());
        host.push_str(&rest[..end]);
        let Some(bracket) = rest[end..].strip_prefix('[') else {
            break;
        };
        let (numbers, after) = bracket.split_once(']')?;
        host.push_str(numbers.split([',', '-']).next()?);
        rest = after;
    }
    (!host.is_empty()).then_some(host)
}

/// The port that rank 0 listens on. MASTER_PORT itself is torchrun's, and we take the next. Where nothing tells one
/// but the run has a name, the name makes one: two jobs of one host take different ones.
fn port(variable: Variables<'_>, run: &str) -> Result<u16, Error> {
    let port = |name: &str| -> Result<Option<u16>, Error> {
        variable(name)
            .map(|text| match text.trim().parse::<u16>() {
                Ok(port) if (1..u16::MAX).contains(&port) => Ok(port),
                _ => Err(Error::new(format!(
                    "{name}={text}: not a port (1 to {})",
                    u16::MAX - 1
                ))),
            })
            .transpose()
    };
    if let Some(port) = port(STORE_PORT)? {
        return Ok(port);
    }
    if let Some(port) = port("MASTER_PORT")? {
        return Ok(port + 1);
    }
    if run.is_empty() {
        return Ok(USUAL_PORT);
    }
    // FNV-1a, into ports that neither services nor outgoing connections take (Linux gives those 32768 and above).
    let hash = run.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    Ok(12_000 + (hash % 18_000) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(pairs: &[(&str, &str)]) -> Result<Option<Rank>, Error> {
        Rank::from_environment(&|name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[track_caller]
    fn rank_of(pairs: &[(&str, &str)]) -> Rank {
        result(pairs).expect("no error").expect("a rank")
    }

    #[track_caller]
    fn error_of(pairs: &[(&str, &str)]) -> String {
        result(pairs).expect_err("an error").to_string()
    }

    /// Rank, ranks, local rank, local ranks, node, nodes.
    fn numbers(rank: &Rank) -> [u32; 6] {
        [
            rank.rank,
            rank.ranks,
            rank.local_rank,
            rank.local_ranks,
            rank.node,
            rank.nodes,
        ]
    }

    #[test]
    fn torchrun_says_who_we_are() {
        let rank = rank_of(&[
            ("RANK", "6"),
            ("WORLD_SIZE", "8"),
            ("LOCAL_RANK", "2"),
            ("LOCAL_WORLD_SIZE", "4"),
            ("GROUP_RANK", "1"),
            ("MASTER_ADDR", "gpu-a"),
            ("MASTER_PORT", "29500"),
            ("TORCHELASTIC_RUN_ID", "job7"),
            ("SLURM_PROCID", "1"),
            ("SLURM_NTASKS", "2"),
        ]);
        assert_eq!(numbers(&rank), [6, 8, 2, 4, 1, 2]);
        assert_eq!((rank.host.as_str(), rank.port), ("gpu-a", 29_501));
        assert_eq!(rank.run, "job7");
        assert!(!rank.launched && !rank.outputs_joined);
    }

    #[test]
    fn ranks_by_hand_need_two_variables() {
        let rank = rank_of(&[("RANK", "1"), ("WORLD_SIZE", "2")]);
        assert_eq!(numbers(&rank), [1, 2, 1, 2, 0, 1]);
        assert_eq!((rank.host.as_str(), rank.port), ("127.0.0.1", 29_501));
        assert!(error_of(&[("RANK", "3")]).contains("RANK is set but WORLD_SIZE is not"));
        assert_eq!(result(&[("WORLD_SIZE", "3")]).expect("no error"), None);
        assert_eq!(result(&[]).expect("no error"), None);
    }

    #[test]
    fn open_mpi_says_who_we_are() {
        let variables = [
            ("OMPI_COMM_WORLD_RANK", "5"),
            ("OMPI_COMM_WORLD_SIZE", "8"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
            ("SLURM_PROCID", "0"),
        ];
        assert!(
            error_of(&variables).contains("Open MPI started ranks on 2 hosts, but MASTER_ADDR is not set")
        );
        let with_address: Vec<_> = variables.into_iter().chain([("MASTER_ADDR", "a")]).collect();
        let rank = rank_of(&with_address);
        assert_eq!(numbers(&rank), [5, 8, 1, 4, 1, 2]);
        assert!(rank.outputs_joined);
    }

    #[test]
    fn mpich_says_who_we_are() {
        let rank = rank_of(&[
            ("PMI_RANK", "3"),
            ("PMI_SIZE", "4"),
            ("MPI_LOCALRANKID", "3"),
            ("MPI_LOCALNRANKS", "4"),
        ]);
        assert_eq!(numbers(&rank), [3, 4, 3, 4, 0, 1]);
    }

    #[test]
    fn slurm_says_who_and_where_we_are() {
        let rank = rank_of(&[
            ("SLURM_PROCID", "5"),
            ("SLURM_NTASKS", "6"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_NODEID", "2"),
            ("SLURM_NNODES", "3"),
            ("SLURM_STEP_TASKS_PER_NODE", "2(x3)"),
            ("SLURM_STEP_NODELIST", "node[01-03]"),
            ("SLURM_JOB_ID", "4711"),
            ("SLURM_STEP_ID", "0"),
        ]);
        assert_eq!(numbers(&rank), [5, 6, 1, 2, 2, 3]);
        assert_eq!((rank.host.as_str(), rank.run.as_str()), ("node01", "4711.0"));
        assert!((12_000..30_000).contains(&rank.port));
        let next = rank_of(&[
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "2"),
            ("SLURM_JOB_ID", "4712"),
        ]);
        assert_ne!(rank.port, next.port, "each job has a port of its own");
        assert_eq!(next.host, "127.0.0.1");
    }

    #[test]
    fn a_step_counts_before_its_job_and_a_batch_script_is_no_rank() {
        let batch = [
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "8"),
            ("SLURM_JOB_ID", "1"),
            ("ENVIRONMENT", "BATCH"),
        ];
        assert_eq!(result(&batch).expect("no error"), None);
        let step: Vec<_> = batch
            .into_iter()
            .chain([("SLURM_STEP_ID", "3"), ("SLURM_STEP_NUM_TASKS", "2")])
            .collect();
        assert_eq!(rank_of(&step).ranks, 2);
    }

    #[test]
    fn tasks_of_each_node() {
        for (list, node, tasks) in [
            ("4", 0, Some(4)),
            ("2(x3),1", 0, Some(2)),
            ("2(x3),1", 2, Some(2)),
            ("2(x3),1", 3, Some(1)),
            ("2(x3),1", 4, None),
            ("2(x", 0, None),
        ] {
            let found = slurm_tasks_here(
                &|name| (name == "SLURM_TASKS_PER_NODE").then(|| list.to_owned()),
                Some(node),
            );
            assert_eq!(found, tasks, "{list} {node}");
        }
    }

    #[test]
    fn first_hosts_of_lists() {
        for (list, host) in [
            ("node1", Some("node1")),
            ("node[01-03,7]", Some("node01")),
            ("node[7,01-03]", Some("node7")),
            ("a,b[1-2]", Some("a")),
            ("rack[1-2]n[08-09]-ib,x", Some("rack1n08-ib")),
            ("node[01", None),
            ("", None),
        ] {
            assert_eq!(first_host(list).as_deref(), host, "{list}");
        }
    }

    #[test]
    fn wrong_values_are_told() {
        for (pairs, part) in [
            (
                &[("RANK", "5"), ("WORLD_SIZE", "4")][..],
                "RANK=5 with WORLD_SIZE=4: ranks are numbered 0 to 3",
            ),
            (
                &[("RANK", "one"), ("WORLD_SIZE", "4")],
                "RANK=one: not a whole number",
            ),
            (&[("RANK", "-1"), ("WORLD_SIZE", "4")], "RANK=-1"),
            (
                &[("RANK", "0"), ("WORLD_SIZE", "")],
                "WORLD_SIZE=: not a whole number",
            ),
            (&[("RANK", "0"), ("WORLD_SIZE", "0")], "WORLD_SIZE=0"),
            (
                &[("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_PORT", "http")],
                "MASTER_PORT=http: not a port",
            ),
            (
                &[("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_PORT", "65535")],
                "MASTER_PORT=65535",
            ),
            (
                &[("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "x")],
                "LOCAL_RANK=x",
            ),
            (&[("SLURM_PROCID", "9"), ("SLURM_NTASKS", "4")], "SLURM_PROCID=9"),
        ] {
            let error = error_of(pairs);
            assert!(error.contains(part), "{error}");
        }
    }
}
