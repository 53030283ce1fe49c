//! As many GPUs as ranks, or several ranks on one.

use std::process::{Command, Stdio};

use cudarc::driver::{CudaContext, result};

use crate::comm;
use crate::error::Error;
use crate::launch::{Launch, Rank};
use crate::store::{Store, host_name};

/// Set in a process that is to print how many GPUs it sees, and nothing else.
const COUNT: &str = "WORKLOAD_COUNT_DEVICES";
/// The first NCCL that lets several ranks use one GPU by a variable: 2.30.3.
const FIRST_TO_SHARE: i32 = 23_003;

pub(crate) fn is_asked_for_count() -> bool {
    std::env::var_os(COUNT).is_some()
}

/// Prints how many GPUs this process sees.
pub(crate) fn answer_count() -> Result<i32, Error> {
    println!("{}", visible()?);
    Ok(0)
}

/// How many GPUs the ranks would see; `None` when that cannot be told, and they will say why.
///
/// Another process looks, since this one may have other libraries than the ranks get, and is not to be profiled.
pub(crate) fn count(launch: &Launch) -> Option<u32> {
    let (program, first_arguments) = launch.program.split_first()?;
    let output = Command::new(program)
        .args(first_arguments)
        .arg("single")
        .envs(launch.env.iter().cloned())
        .env(COUNT, "1")
        .env_remove("CUDA_INJECTION64_PATH")
        .env_remove("NVTX_INJECTION64_PATH")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

/// Fails where a host has more ranks than GPUs.
pub(crate) fn enough(ranks: u32, gpus: u32, host: &str) -> Result<(), Error> {
    if ranks <= gpus {
        return Ok(());
    }
    let plural = if gpus == 1 { "" } else { "s" };
    Err(Error::new(format!(
        "{ranks} ranks but {gpus} GPU{plural} for them on host {host}: start fewer ranks, or put several on one GPU \
         with --share-gpus"
    )))
}

fn visible() -> Result<u32, Error> {
    if !comm::can_load("libcuda.so.1") && !comm::can_load("libcuda.so") {
        return Err(Error::new(
            "no GPU can be used here: libcuda.so.1 (NVIDIA's driver) was not found",
        ));
    }
    result::init()?;
    Ok(CudaContext::device_count()?.unsigned_abs())
}

/// On every rank, once they are connected: each has a GPU of its own, unless they may share.
///
/// Asked of all, since batch systems show each rank GPUs of its own: how many one sees says little.
pub(crate) fn check(rank: &Rank, store: &Store, share: bool) -> Result<(), Error> {
    if rank.ranks == 1 {
        return Ok(());
    }
    let count = visible()?;
    if count == 0 || share {
        return Ok(());
    }
    let gpu = identity(rank.local_rank % count).unwrap_or_default();
    let all = store.gather(format!("{gpu} {}", host_name()).as_bytes())?;
    let verdict = all.map(|all| {
        let places: Vec<_> = all.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect();
        let places: Vec<_> = places.iter().filter_map(|place| place.split_once(' ')).collect();
        crowded(&places).unwrap_or_default()
    });
    let told = store.broadcast(verdict.as_ref().map(String::as_bytes))?;
    if told.is_empty() {
        return Ok(());
    }
    Err(Error::new(String::from_utf8_lossy(&told)))
}

/// What is wrong where ranks have the same GPU; `places` are GPU and host of each rank.
fn crowded(places: &[(&str, &str)]) -> Option<String> {
    places.iter().find_map(|(_, host)| {
        // A GPU that has no identity is not held against anybody.
        let gpus: Vec<&str> = places
            .iter()
            .filter(|(gpu, other)| other == host && !gpu.is_empty())
            .map(|(gpu, _)| *gpu)
            .collect();
        let different: std::collections::BTreeSet<&str> = gpus.iter().copied().collect();
        enough(gpus.len() as u32, different.len() as u32, host)
            .err()
            .map(|error| error.to_string())
    })
}

/// What tells a GPU from all others.
fn identity(device: u32) -> Option<String> {
    let device = result::device::get(device.cast_signed()).ok()?;
    let uuid = result::device::get_uuid(device).ok()?;
    Some(
        uuid.bytes
            .iter()
            .map(|byte| format!("{:02x}", byte.cast_unsigned()))
            .collect(),
    )
}

/// Several ranks on one GPU: NCCL has to be told, before anything uses it. Variables that are set stay.
///
/// NCCL refuses two ranks on one GPU of one host. From 2.30.3 on a variable allows it; before, each rank claims to be a
/// host of its own, and they talk over sockets. Few thread blocks each, since all of them have to fit on the GPU.
pub(crate) fn prepare_sharing(launch: &Launch, rank: &Rank) -> Result<(), Error> {
    if count(launch).is_some_and(|count| count >= rank.local_ranks) {
        return Ok(());
    }
    for (name, value) in sharing_variables(comm::version()?, rank) {
        if std::env::var_os(name).is_none() {
            // SAFETY: no other thread runs yet: this is the beginning of the program.
            unsafe { std::env::set_var(name, value) };
        }
    }
    Ok(())
}

fn sharing_variables(nccl_version: i32, rank: &Rank) -> Vec<(&'static str, String)> {
    let mut variables = vec![
        ("NCCL_IB_DISABLE", "1".to_owned()),
        ("NCCL_MNNVL_ENABLE", "0".to_owned()),
        ("NCCL_NVLS_ENABLE", "0".to_owned()),
        ("NCCL_CUMEM_HOST_ENABLE", "0".to_owned()),
        ("NCCL_ALLGATHERV_ENABLE", "0".to_owned()),
        ("CUDA_MODULE_LOADING", "EAGER".to_owned()),
        ("CUDA_DEVICE_MAX_CONNECTIONS", "32".to_owned()),
    ];
    if rank.nodes == 1 {
        variables.push(("NCCL_SOCKET_IFNAME", "lo".to_owned()));
    }
    if nccl_version >= FIRST_TO_SHARE {
        variables.push(("NCCL_MULTI_RANK_GPU_ENABLE", "1".to_owned()));
        variables.push(("NCCL_MAX_CTAS", "8".to_owned()));
        variables.push(("NCCL_NET_GDR_LEVEL", "LOC".to_owned()));
        variables.push(("NCCL_WIN_ENABLE", "0".to_owned()));
    } else {
        variables.push(("NCCL_HOSTID", format!("rank{}", rank.rank)));
        variables.push(("NCCL_NET", "Socket".to_owned()));
        variables.push(("NCCL_MAX_CTAS", "4".to_owned()));
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_ranks_than_gpus_are_told() {
        assert!(enough(4, 4, "a").is_ok());
        let error = enough(8, 4, "a").expect_err("too many").to_string();
        assert!(
            error.starts_with("8 ranks but 4 GPUs for them on host a: "),
            "{error}"
        );
        assert!(error.contains("--share-gpus"), "{error}");
        let error = enough(2, 1, "a").expect_err("too many").to_string();
        assert!(error.contains("but 1 GPU for"), "{error}");
    }

    #[test]
    fn ranks_on_the_same_gpu_are_found_by_host() {
        assert_eq!(
            crowded(&[("g0", "a"), ("g1", "a"), ("g0", "b"), ("g1", "b")]),
            None
        );
        let error = crowded(&[("g0", "a"), ("g1", "a"), ("g0", "b"), ("g0", "b")]);
        assert!(error.is_some_and(|error| error.starts_with("2 ranks but 1 GPU for them on host b")));
        assert_eq!(crowded(&[("", "a"), ("", "a")]), None);
    }

    #[test]
    fn nccl_is_told_by_its_version() {
        let rank = |nodes: &str| {
            Rank::from_environment(&|name| match name {
                "RANK" => Some("3".to_owned()),
                "WORLD_SIZE" => Some("4".to_owned()),
                "GROUP_WORLD_SIZE" => Some(nodes.to_owned()),
                "MASTER_ADDR" => Some("a".to_owned()),
                _ => None,
            })
            .expect("no error")
            .expect("a rank")
        };
        let value = |version, nodes, wanted: &str| {
            sharing_variables(version, &rank(nodes))
                .into_iter()
                .find_map(|(name, value)| (name == wanted).then_some(value))
        };
        assert_eq!(value(22_809, "1", "NCCL_HOSTID").as_deref(), Some("rank3"));
        assert_eq!(value(22_809, "1", "NCCL_MULTI_RANK_GPU_ENABLE"), None);
        assert_eq!(value(23_003, "1", "NCCL_HOSTID"), None);
        assert_eq!(
            value(23_203, "1", "NCCL_MULTI_RANK_GPU_ENABLE").as_deref(),
            Some("1")
        );
        assert_eq!(value(23_203, "1", "NCCL_SOCKET_IFNAME").as_deref(), Some("lo"));
        assert_eq!(value(23_203, "2", "NCCL_SOCKET_IFNAME"), None);
    }
}
