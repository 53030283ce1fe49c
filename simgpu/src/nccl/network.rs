//! Who this process is among others: its host, and the network interface on which other ranks reach it.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;

use super::errors::{Failure, Outcome};

/// One interface with an address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Interface {
    name: String,
    address: IpAddr,
    loopback: bool,
}

/// This machine's name.
pub(super) fn hostname() -> String {
    let mut name = [0u8; 256];
    // SAFETY: a buffer with its size; the last byte stays zero.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    CStr::from_bytes_until_nul(&name)
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// FNV-1a.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Tells hosts apart as NCCL does: by NCCL_HOSTID, else by the name and the boot's id.
pub(super) fn host_hash() -> u64 {
    static HASH: OnceLock<u64> = OnceLock::new();
    *HASH.get_or_init(|| {
        let id = std::env::var("NCCL_HOSTID").unwrap_or_else(|_| {
            let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
            hostname() + &boot
        });
        hash(id.as_bytes())
    })
}

/// A random number: names processes and communicators, and whoever does not know it cannot talk to them.
pub(super) fn random() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: a buffer with its size. glibc has it as a function from 2.25 on.
    let got = unsafe { libc::syscall(libc::SYS_getrandom, bytes.as_mut_ptr(), bytes.len(), 0) };
    if got == 8 {
        return u64::from_ne_bytes(bytes);
    }
    let place = std::ptr::from_ref(&bytes) as u64;
    hash(
        &(crate::clock::now_ns().cast_unsigned() ^ place ^ u64::from(std::process::id()) << 32).to_le_bytes(),
    )
}

/// All interfaces that are up, in the system's order.
fn interfaces() -> Vec<Interface> {
    let mut list = std::ptr::null_mut();
    // SAFETY: a place for the list, which is freed below.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: the list's elements are valid until it is freed; null ends it.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        if entry.ifa_addr.is_null() || entry.ifa_flags & libc::IFF_UP as u32 == 0 {
            continue;
        }
        // SAFETY: not null; the family says which address it is, and the reads follow it.
        let address = unsafe {
            match i32::from((*entry.ifa_addr).sa_family) {
                libc::AF_INET => {
                    let address = entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                    IpAddr::V4(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)))
                }
                libc::AF_INET6 => {
                    let address = entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned();
                    let address = Ipv6Addr::from(address.sin6_addr.s6_addr);
                    // Addresses of one link only would need its number with them.
                    if address.is_unicast_link_local() {
                        continue;
                    }
                    IpAddr::V6(address)
                }
                _ => continue,
            }
        };
        // SAFETY: a zero-terminated name.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }
            .to_string_lossy()
            .into_owned();
        found.push(Interface {
            name,
            address,
            loopback: entry.ifa_flags & libc::IFF_LOOPBACK as u32 != 0,
        });
    }
    // SAFETY: the list that getifaddrs made, once.
    unsafe { libc::freeifaddrs(list) };
    found
}

/// Chooses as NCCL does. `wanted` is NCCL_SOCKET_IFNAME: prefixes with commas between, `^` excludes them, `=` (after
/// `^` too) takes whole names. Without it: no docker, no loopback; then docker; then loopback. IPv4 goes first.
fn choose(interfaces: &[Interface], wanted: Option<&str>) -> Option<Interface> {
    let pick = |allowed: &dyn Fn(&Interface) -> bool| {
        let mut fitting: Vec<&Interface> = interfaces.iter().filter(|one| allowed(one)).collect();
        fitting.sort_by_key(|one| one.address.is_ipv6());
        fitting.first().map(|one| (*one).clone())
    };
    let Some(wanted) = wanted.filter(|wanted| !wanted.is_empty()) else {
        let docker = |one: &Interface| one.name.starts_with("docker");
        return pick(&|one| !one.loopback && !docker(one))
            .or_else(|| pick(&|one| docker(one)))
            .or_else(|| pick(&|one| one.loopback));
    };
    let (exclude, rest) = wanted
        .strip_prefix('^')
        .map_or((false, wanted), |rest| (true, rest));
    let (exact, rest) = rest.strip_prefix('=').map_or((false, rest), |rest| (true, rest));
    let matches = |one: &Interface| {
        rest.split(',').filter(|name| !name.is_empty()).any(|name| {
            if exact {
                one.name == name
            } else {
                one.name.starts_with(name)
            }
        })
    };
    pick(&|one| matches(one) != exclude)
}

/// The address on which other ranks reach this process.
pub(super) fn address() -> Outcome<IpAddr> {
    let wanted = std::env::var("NCCL_SOCKET_IFNAME").ok();
    let known = interfaces();
    choose(&known, wanted.as_deref())
        .map(|one| one.address)
        .ok_or_else(|| {
            let mut names: Vec<&str> = known.iter().map(|one| one.name.as_str()).collect();
            names.dedup();
            let there = if names.is_empty() {
                "none is up".to_owned()
            } else {
                format!("up are {}", names.join(", "))
            };
            Failure::system(match wanted {
                Some(wanted) => format!("no network interface for NCCL_SOCKET_IFNAME={wanted}: {there}"),
                None => format!("no network interface to reach other ranks by: {there}"),
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, address: &str) -> Interface {
        Interface {
            name: name.to_owned(),
            address: address.parse().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            loopback: name == "lo",
        }
    }

    #[test]
    fn interfaces_are_chosen_as_nccl_does() {
        let all = [
            interface("lo", "127.0.0.1"),
            interface("docker0", "172.17.0.1"),
            interface("eth0", "2001:db8::5"),
            interface("eth0", "10.0.0.5"),
            interface("eth1", "10.1.0.5"),
            interface("ib0", "10.2.0.5"),
        ];
        let name = |wanted| choose(&all, wanted).map(|one| one.address.to_string());
        assert_eq!(name(None).as_deref(), Some("10.0.0.5"));
        assert_eq!(name(Some("")).as_deref(), Some("10.0.0.5"));
        assert_eq!(name(Some("ib,eth1")).as_deref(), Some("10.1.0.5"));
        assert_eq!(name(Some("eth")).as_deref(), Some("10.0.0.5"));
        assert_eq!(name(Some("=eth")), None);
        assert_eq!(name(Some("=lo")).as_deref(), Some("127.0.0.1"));
        assert_eq!(name(Some("^docker,lo,eth")).as_deref(), Some("10.2.0.5"));
        assert_eq!(name(Some("^=eth0,lo")).as_deref(), Some("172.17.0.1"));
        assert_eq!(
            choose(&all[..2], None).map(|one| one.name).as_deref(),
            Some("docker0")
        );
        assert_eq!(choose(&all[..1], None).map(|one| one.name).as_deref(), Some("lo"));
        assert_eq!(choose(&[], None), None);
    }

    #[test]
    fn random_numbers_differ() {
        assert_ne!(random(), random());
    }
}
