//! What NVML tells of the stand-in, asked through somebody else's reading of nvml.h.

mod stand_in;

use std::time::{Duration, Instant};

use cudarc::driver::sys;
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{
    Clock, P2pCapabilitiesIndex, P2pStatus, TemperatureSensor, TopologyLevel,
};
use nvml_wrapper::error::NvmlError;

use stand_in::{on_the_stand_in, open_device};

#[test]
fn devices_are_found_by_all_their_names() {
    on_the_stand_in(
        "devices_are_found_by_all_their_names",
        &[("SIMGPU_DEVICES", "4")],
        || {
            let nvml = Nvml::init().expect("NVML");
            assert_eq!(nvml.device_count().expect("a number"), 4);
            for index in 0..4 {
                let device = nvml.device_by_index(index).expect("a device");
                let pci = device.pci_info().expect("its place");
                let (context, _stream) = open_device(index as usize);
                let of_cuda = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID;
                assert_eq!(
                    context.attribute(of_cuda).expect("an answer"),
                    pci.bus.cast_signed()
                );
                assert_eq!(pci.bus_id, format!("00000000:{:02X}:00.0", pci.bus));
                let short = format!("0000:{:02x}:00.0", pci.bus);
                let found = [
                    nvml.device_by_pci_bus_id(pci.bus_id),
                    nvml.device_by_pci_bus_id(short),
                    nvml.device_by_uuid(device.uuid().expect("a UUID")),
                ];
                for found in found {
                    assert_eq!(found.expect("found").index().expect("an index"), index);
                }
                assert_eq!(device.minor_number().expect("a number"), index);
                assert!(device.name().expect("a name").starts_with("Simulated"));
            }
            assert!(nvml.device_by_index(4).is_err());
            assert!(matches!(
                nvml.device_by_uuid("GPU-none"),
                Err(NvmlError::NotFound)
            ));
            assert_eq!(nvml.sys_nvml_version().expect("a version"), "simulated");
        },
    );
}

#[test]
fn an_nvswitch_node_is_told_of() {
    on_the_stand_in("an_nvswitch_node_is_told_of", &[], || {
        let nvml = Nvml::init().expect("NVML");
        let device = |index| nvml.device_by_index(index).expect("a device");
        let (first, far) = (device(0), device(5));
        assert_eq!(
            first.topology_common_ancestor(device(1)).ok(),
            Some(TopologyLevel::Node)
        );
        assert_eq!(
            first.topology_common_ancestor(device(5)).ok(),
            Some(TopologyLevel::System)
        );
        for what in [
            P2pCapabilitiesIndex::Read,
            P2pCapabilitiesIndex::Write,
            P2pCapabilitiesIndex::NvLink,
        ] {
            assert_eq!(first.p2p_status(&far, what).ok(), Some(P2pStatus::Ok));
        }
        let mut switches = Vec::new();
        for number in 0..18 {
            let link = first.link_wrapper_for(number);
            assert!(link.is_active().expect("an answer"));
            assert_eq!(link.version().expect("a version"), 4);
            switches.push(link.remote_pci_info().expect("a switch").bus);
        }
        switches.dedup();
        assert_eq!(switches.len(), 4, "four switches: {switches:?}");
        for index in 0..8 {
            assert!(!switches.contains(&device(index).pci_info().expect("its place").bus));
        }
        assert!(first.link_wrapper_for(18).is_active().is_err());
        assert_eq!(
            (first.numa_node_id().ok(), far.numa_node_id().ok()),
            (Some(0), Some(1))
        );
        assert_eq!(far.memory_affinity(1, 0).expect("nodes"), [2]);
        let processors = |index| device(index).cpu_affinity(16).expect("processors");
        let (here, there) = (processors(0), processors(7));
        assert!(here.iter().any(|word| *word != 0) && there.iter().any(|word| *word != 0));
        assert_eq!(
            (
                first.current_pcie_link_gen().ok(),
                first.current_pcie_link_width().ok()
            ),
            (Some(5), Some(16))
        );
    });
}

#[test]
fn a_pcie_box_is_told_of() {
    on_the_stand_in("a_pcie_box_is_told_of", &[("SIMGPU_TOPOLOGY", "pcie")], || {
        let nvml = Nvml::init().expect("NVML");
        let device = |index| nvml.device_by_index(index).expect("a device");
        let first = device(0);
        let levels = [1, 2, 4].map(|other| first.topology_common_ancestor(device(other)).ok());
        let expected = [TopologyLevel::Single, TopologyLevel::Node, TopologyLevel::System];
        assert_eq!(levels, expected.map(Some));
        let near = |level| {
            let found = first.topology_nearest_gpus(level).expect("devices");
            let indices = found.iter().map(|device| device.index().expect("an index"));
            indices.collect::<Vec<_>>()
        };
        assert_eq!(near(TopologyLevel::Single), [1]);
        assert_eq!(near(TopologyLevel::Node), [1, 2, 3]);
        assert_eq!(near(TopologyLevel::System), [1, 2, 3, 4, 5, 6, 7]);
        let status = |other, what| first.p2p_status(&device(other), what).ok();
        assert_eq!(status(1, P2pCapabilitiesIndex::Read), Some(P2pStatus::Ok));
        assert_eq!(
            status(1, P2pCapabilitiesIndex::NvLink),
            Some(P2pStatus::NotSupported)
        );
        assert_eq!(
            status(4, P2pCapabilitiesIndex::Read),
            Some(P2pStatus::ChipsetNotSupported)
        );
        assert!(matches!(
            first.link_wrapper_for(0).is_active(),
            Err(NvmlError::NotSupported)
        ));
    });
}

#[test]
fn utilisation_is_what_was_run() {
    on_the_stand_in("utilisation_is_what_was_run", &[], || {
        let nvml = Nvml::init().expect("NVML");
        let device = nvml.device_by_index(0).expect("a device");
        assert_eq!(
            device.running_compute_processes().expect("processes").len(),
            0,
            "no context yet"
        );
        let idle = device.utilization_rates().expect("rates");
        assert_eq!((idle.gpu, idle.memory), (0, 0));
        let cold = (
            device.power_usage().expect("power"),
            device.temperature(TemperatureSensor::Gpu).expect("degrees"),
        );
        let (_context, stream) = open_device(0);
        // Memsets of 48 MB at 4.8 GB/s: 10 ms each, for 310 ms of a second.
        let started = Instant::now();
        let memory = stream.alloc_zeros::<u8>(48_000_000).expect("memory");
        let pointer = {
            use cudarc::driver::DevicePtr;
            memory.device_ptr(&stream).0
        };
        stream.synchronize().expect("ends");
        for _ in 0..30 {
            // SAFETY: the whole allocation.
            unsafe { sys::cuMemsetD8Async(pointer, 1, 48_000_000, stream.cu_stream()) }
                .result()
                .expect("set");
        }
        stream.synchronize().expect("ends");
        let rates = device.utilization_rates().expect("rates");
        // On a machine that is slow meanwhile they take longer than modelled, and none of the window is left idle.
        let most = (started.elapsed().min(Duration::from_secs(1)).as_millis() / 10) as u32 + 5;
        assert!((30..=most).contains(&rates.memory), "{rates:?} of {most}");
        assert_eq!(rates.gpu, 0, "no kernel ran");
        let processes = device.running_compute_processes().expect("processes");
        assert_eq!(
            processes.iter().map(|process| process.pid).collect::<Vec<_>>(),
            [std::process::id()]
        );
        let info = device.memory_info().expect("sizes");
        assert!(info.used >= 48_000_000 && info.used + info.free == info.total);
        assert!(device.power_usage().expect("power") >= cold.0 && cold.1 < 40);
        assert_eq!(device.max_clock_info(Clock::SM).expect("a clock"), 1980);
    });
}
