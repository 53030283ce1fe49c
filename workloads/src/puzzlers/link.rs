//! Which link joins two GPUs, as NVML tells it: the words are those of `nvidia-smi topo -m`.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

use cudarc::driver::CudaContext;

/// What two GPUs' paths through PCIe have in common (nvmlGpuTopologyLevel_t).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ancestor {
    /// On one board.
    Internal,
    /// One PCIe switch.
    Pix,
    /// Several PCIe switches, no host bridge.
    Pxb,
    /// A PCIe host bridge of the CPU.
    Phb,
    /// Several host bridges of one NUMA node.
    Node,
    /// The link between sockets.
    Sys,
}

impl Ancestor {
    fn from_level(level: c_uint) -> Option<Self> {
        Some(match level {
            0 => Self::Internal,
            10 => Self::Pix,
            20 => Self::Pxb,
            30 => Self::Phb,
            40 => Self::Node,
            50 => Self::Sys,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Internal => "PSB",
            Self::Pix => "PIX",
            Self::Pxb => "PXB",
            Self::Phb => "PHB",
            Self::Node => "NODE",
            Self::Sys => "SYS",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Internal => "one board",
            Self::Pix => "one PCIe switch",
            Self::Pxb => "several PCIe switches",
            Self::Phb => "the CPU's PCIe host bridge",
            Self::Node => "several PCIe host bridges of a NUMA node",
            Self::Sys => "PCIe and the link between CPU sockets",
        }
    }
}

/// The link between two GPUs, and how copies go over it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Link {
    /// NVLinks between them, directly or through NVSwitch.
    pub(super) nvlinks: u32,
    /// Their version: 4 on Hopper.
    pub(super) nvlink_version: Option<u32>,
    pub(super) ancestor: Option<Ancestor>,
    /// PCIe generation and lanes of the slower of both.
    pub(super) pcie: Option<(u32, u32)>,
    /// Whether copies go directly, with peer access, or are staged through the host's memory.
    pub(super) direct: bool,
}

impl Link {
    /// As `nvidia-smi topo -m` calls it; `?` where NVML does not tell.
    pub(super) fn name(&self) -> String {
        if self.nvlinks > 0 {
            return format!("NV{}", self.nvlinks);
        }
        self.ancestor.map_or("?", Ancestor::name).to_owned()
    }

    /// What carries the copies.
    pub(super) fn path(&self) -> &'static str {
        if self.direct { "direct" } else { "via host" }
    }

    /// One direction's peak in GB/s (10^9 bytes), before protocol: of the NVLinks, else of the PCIe lanes.
    pub(super) fn peak_gb_s(&self) -> Option<f64> {
        if self.nvlinks > 0 && self.direct {
            // NVIDIA's figures for each generation, one link, one direction.
            let each = match self.nvlink_version? {
                1 => 20.0,
                2..=4 => 25.0,
                _ => 50.0,
            };
            return Some(f64::from(self.nvlinks) * each);
        }
        let (generation, lanes) = self.pcie?;
        // Gigatransfers a second, less the line code: 8b/10b for the first two, 128b/130b, then FLIT mode.
        let each = match generation {
            1 => 0.25,
            2 => 0.5,
            3 => 8.0 * 128.0 / 130.0 / 8.0,
            4 => 16.0 * 128.0 / 130.0 / 8.0,
            5 => 32.0 * 128.0 / 130.0 / 8.0,
            _ => 8.0 * 242.0 / 256.0,
        };
        Some(each * f64::from(lanes))
    }

    /// The way that copies take, in words.
    pub(super) fn way(&self) -> String {
        if self.nvlinks > 0 && self.direct {
            let version = self
                .nvlink_version
                .map_or_else(String::new, |version| format!(" {version}"));
            return format!("{} x NVLink{version}", self.nvlinks);
        }
        let way = self.ancestor.map_or("an unknown link", Ancestor::words);
        if self.direct {
            way.to_owned()
        } else if self.nvlinks > 0 {
            format!("staged through the host's memory, past {} NVLinks", self.nvlinks)
        } else {
            format!("staged through the host's memory over {way}")
        }
    }

    /// The way and its peak, in words.
    pub(super) fn words(&self) -> String {
        let peak = self
            .peak_gb_s()
            .map_or_else(String::new, |peak| format!(" ({peak:.0} GB/s at most)"));
        format!("{}{peak}", self.way())
    }
}

/// nvmlPciInfo_t.
#[repr(C)]
#[derive(Default)]
struct PciInfo {
    legacy_bus_id: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    device_id: c_uint,
    subsystem_id: c_uint,
    bus_id: [c_char; 32],
}

impl PciInfo {
    fn place(&self) -> [c_uint; 3] {
        [self.domain, self.bus, self.device]
    }
}

type Handle = *mut c_void;

/// NVML's functions (nvml.h), as far as they are there: which ones are depends on the driver.
struct Functions {
    by_bus_id: Option<unsafe extern "C" fn(*const c_char, *mut Handle) -> c_uint>,
    pci: Option<unsafe extern "C" fn(Handle, *mut PciInfo) -> c_uint>,
    ancestor: Option<unsafe extern "C" fn(Handle, Handle, *mut c_uint) -> c_uint>,
    p2p_status: Option<unsafe extern "C" fn(Handle, Handle, c_uint, *mut c_uint) -> c_uint>,
    link_state: Option<unsafe extern "C" fn(Handle, c_uint, *mut c_uint) -> c_uint>,
    link_version: Option<unsafe extern "C" fn(Handle, c_uint, *mut c_uint) -> c_uint>,
    link_remote: Option<unsafe extern "C" fn(Handle, c_uint, *mut PciInfo) -> c_uint>,
    pcie_generation: Option<unsafe extern "C" fn(Handle, *mut c_uint) -> c_uint>,
    pcie_width: Option<unsafe extern "C" fn(Handle, *mut c_uint) -> c_uint>,
}

/// NVML_NVLINK_MAX_LINKS.
const MOST_LINKS: c_uint = 18;
/// NVML_P2P_CAPS_INDEX_NVLINK.
const P2P_NVLINK: c_uint = 2;

/// NVML's view of the GPUs that this process sees, by their CUDA numbers.
pub(super) struct Links {
    functions: Option<Functions>,
    handles: Vec<Option<Handle>>,
}

/// A symbol of an open library as a function.
///
/// # Safety
/// `F` must be the symbol's type.
unsafe fn symbol<F>(library: *mut c_void, name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the library is open.
    let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
    // SAFETY: a function's address; its type is the caller's promise.
    (!symbol.is_null()).then(|| unsafe { std::mem::transmute_copy(&symbol) })
}

/// Runs a question of NVML and gives its answer, unless it has none.
fn ask<T: Default>(question: impl FnOnce(*mut T) -> c_uint) -> Option<T> {
    let mut answer = T::default();
    (question(&raw mut answer) == 0).then_some(answer)
}

impl Links {
    /// Opens NVML, where there is one, and finds the GPUs of `contexts` in it.
    pub(super) fn open(contexts: &[std::sync::Arc<CudaContext>]) -> Self {
        let functions = functions();
        let handles = contexts
            .iter()
            .map(|context| {
                let by_bus_id = functions.as_ref()?.by_bus_id?;
                let bus_id = bus_id(context)?;
                let mut handle = std::ptr::null_mut();
                // SAFETY: a zero-terminated text and a place for the handle.
                (unsafe { by_bus_id(bus_id.as_ptr(), &raw mut handle) } == 0).then_some(handle)
            })
            .collect();
        Self { functions, handles }
    }

    /// The link between two of the GPUs; `direct` is what CUDA said of peer access.
    pub(super) fn between(&self, from: usize, to: usize, direct: bool) -> Link {
        let mut link = Link {
            nvlinks: 0,
            nvlink_version: None,
            ancestor: None,
            pcie: None,
            direct,
        };
        let handle = |device: usize| self.handles.get(device).copied().flatten();
        let (Some(functions), Some(a), Some(b)) = (&self.functions, handle(from), handle(to)) else {
            return link;
        };
        link.ancestor = functions
            .ancestor
            // SAFETY: handles that NVML gave, and a place for the answer.
            .and_then(|function| ask(|answer| unsafe { function(a, b, answer) }))
            .and_then(Ancestor::from_level);
        link.nvlinks = self.nvlinks(functions, a, b);
        link.nvlink_version = functions
            .link_version
            // SAFETY: as above.
            .and_then(|function| ask(|answer| unsafe { function(a, 0, answer) }));
        let pcie = |handle: Handle| {
            // SAFETY: as above.
            let generation =
                ask(|answer| unsafe { functions.pcie_generation.map_or(1, |f| f(handle, answer)) })?;
            // SAFETY: as above.
            let width = ask(|answer| unsafe { functions.pcie_width.map_or(1, |f| f(handle, answer)) })?;
            Some((generation, width))
        };
        link.pcie = pcie(a)
            .zip(pcie(b))
            .map(|(one, other)| (one.0.min(other.0), one.1.min(other.1)));
        link
    }

    /// NVLinks from `a` to `b`: those that end at it, else (through NVSwitch) those that end at no GPU.
    fn nvlinks(&self, functions: &Functions, a: Handle, b: Handle) -> u32 {
        let status: Option<c_uint> = functions
            .p2p_status
            // SAFETY: handles that NVML gave, and a place for the answer.
            .and_then(|function| ask(|answer| unsafe { function(a, b, P2P_NVLINK, answer) }));
        // 0 is NVML_P2P_STATUS_OK.
        if status != Some(0) {
            return 0;
        }
        let place = |handle: Handle| {
            // SAFETY: as above.
            ask(|answer| unsafe { functions.pci.map_or(1, |pci| pci(handle, answer)) })
                .map(|pci: PciInfo| pci.place())
        };
        let gpus: Vec<_> = self
            .handles
            .iter()
            .flatten()
            .filter_map(|handle| place(*handle))
            .collect();
        let remotes = |handle: Handle| {
            (0..MOST_LINKS)
                .filter(|link| {
                    // SAFETY: as above; a link that is not there gives an error.
                    ask(|answer| unsafe {
                        functions
                            .link_state
                            .map_or(1, |state| state(handle, *link, answer))
                    }) == Some(1)
                })
                .map(|link| {
                    // SAFETY: as above.
                    ask(|answer| unsafe {
                        functions
                            .link_remote
                            .map_or(1, |remote| remote(handle, link, answer))
                    })
                    .map(|pci: PciInfo| pci.place())
                })
                .collect::<Vec<_>>()
        };
        let (of_a, of_b) = (remotes(a), remotes(b));
        let to_b = place(b).map_or(0, |b| of_a.iter().filter(|remote| **remote == Some(b)).count());
        if to_b > 0 {
            return to_b as u32;
        }
        let to_switches = |remotes: &[Option<[c_uint; 3]>]| {
            remotes
                .iter()
                .filter(|remote| remote.is_none_or(|remote| !gpus.contains(&remote)))
                .count()
        };
        to_switches(&of_a).min(to_switches(&of_b)) as u32
    }
}

fn functions() -> Option<Functions> {
    let library = [c"libnvidia-ml.so.1", c"libnvidia-ml.so"]
        .into_iter()
        .find_map(|name| {
            // SAFETY: loads NVIDIA's management library; its initialisers are made for that.
            let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            (!library.is_null()).then_some(library)
        })?;
    // SAFETY: names and types as in nvml.h.
    unsafe {
        let init: extern "C" fn() -> c_uint = symbol(library, c"nvmlInit_v2")?;
        if init() != 0 {
            return None;
        }
        Some(Functions {
            by_bus_id: symbol(library, c"nvmlDeviceGetHandleByPciBusId_v2"),
            pci: symbol(library, c"nvmlDeviceGetPciInfo_v3"),
            ancestor: symbol(library, c"nvmlDeviceGetTopologyCommonAncestor"),
            p2p_status: symbol(library, c"nvmlDeviceGetP2PStatus"),
            link_state: symbol(library, c"nvmlDeviceGetNvLinkState"),
            link_version: symbol(library, c"nvmlDeviceGetNvLinkVersion"),
            link_remote: symbol(library, c"nvmlDeviceGetNvLinkRemotePciInfo_v2"),
            pcie_generation: symbol(library, c"nvmlDeviceGetCurrPcieLinkGeneration"),
            pcie_width: symbol(library, c"nvmlDeviceGetCurrPcieLinkWidth"),
        })
    }
}

/// A GPU's place on the PCIe bus, as CUDA writes it.
pub(super) fn bus_id(context: &CudaContext) -> Option<CString> {
    let mut text = [0 as c_char; 32];
    // SAFETY: room for the text and its length; the device is open.
    let code = unsafe {
        cudarc::driver::sys::cuDeviceGetPCIBusId(text.as_mut_ptr(), text.len() as c_int, context.cu_device())
    };
    code.result().ok()?;
    // SAFETY: CUDA ended the text with a zero.
    Some(unsafe { CStr::from_ptr(text.as_ptr()) }.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(nvlinks: u32, ancestor: Option<Ancestor>, direct: bool) -> Link {
        Link {
            nvlinks,
            nvlink_version: Some(4),
            ancestor,
            pcie: Some((5, 16)),
            direct,
        }
    }

    #[test]
    fn links_have_their_usual_names() {
        assert_eq!(link(18, Some(Ancestor::Sys), true).name(), "NV18");
        assert_eq!(link(0, Some(Ancestor::Pxb), true).name(), "PXB");
        assert_eq!(link(0, None, true).name(), "?");
    }

    #[test]
    fn peaks_are_of_what_carries_the_copy() {
        // 18 links of 25 GB/s; 16 lanes of 32 GT/s, 128 of 130 bits.
        assert_eq!(link(18, None, true).peak_gb_s(), Some(450.0));
        let staged = link(18, None, false).peak_gb_s().expect("a peak");
        assert!((staged - 63.015).abs() < 0.001, "{staged}");
    }

    #[test]
    fn words_say_what_is_staged() {
        let staged = link(18, Some(Ancestor::Sys), false).words();
        assert!(
            staged.contains("staged") && staged.contains("18 NVLinks"),
            "{staged}"
        );
        assert!(
            link(0, Some(Ancestor::Sys), false)
                .words()
                .contains("between CPU sockets")
        );
    }
}
