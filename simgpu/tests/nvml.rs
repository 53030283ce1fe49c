//! What NVML tells of the stand-in, asked through somebody else's reading of nvml.h.

use crate::schedule;
use crate::stand_in;
use crate::test_again;

use std::time::{Duration, Instant};

use cudarc::driver::sys;
use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, MemoryLocation, P2pCapabilitiesIndex, P2pStatus, PcieUtilCounter,
    TemperatureSensor, TopologyLevel,
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
    schedule::alone();
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

/// Copies from the host, memsets, and copies to another device, until it is ended.
fn work_for_ever() {
    let (first, stream) = open_device(0);
    let (second, _stream) = open_device(1);
    let (from, to) = (stream.alloc_zeros::<u8>(8_000_000).expect("memory"), {
        second.bind_to_thread().expect("bound");
        let mut to = 0;
        // SAFETY: a place of this function.
        unsafe { sys::cuMemAlloc_v2(&raw mut to, 8_000_000) }
            .result()
            .expect("memory");
        to
    });
    first.bind_to_thread().expect("bound");
    // SAFETY: a context of this function's; and this process ends with the test that has started it.
    unsafe {
        sys::cuCtxEnablePeerAccess(second.cu_ctx(), 0)
            .result()
            .expect("enabled");
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
    let from = {
        use cudarc::driver::DevicePtr;
        from.device_ptr(&stream).0
    };
    let host = vec![1u8; 100_000];
    println!("works");
    loop {
        // SAFETY: whole allocations, or parts of them.
        unsafe {
            let stream = stream.cu_stream();
            sys::cuMemcpyHtoDAsync_v2(from, host.as_ptr().cast(), host.len(), stream)
                .result()
                .expect("copied");
            sys::cuMemsetD8Async(from, 1, 8_000_000, stream)
                .result()
                .expect("set");
            sys::cuMemcpyPeerAsync(to, second.cu_ctx(), from, first.cu_ctx(), 1_000_000, stream)
                .result()
                .expect("copied");
            sys::cuStreamSynchronize(stream).result().expect("ends");
        }
    }
}

/// One value by its number; of NVLink for the first link, of 18.
fn field(nvml: &Nvml, index: u32, id: u32) -> u64 {
    let device = nvml.device_by_index(index).expect("a device");
    let wanted = nvml_wrapper::structs::device::FieldId(id);
    let values = device.field_values_for(&[wanted]).expect("values");
    match values[0]
        .as_ref()
        .expect("a value")
        .value
        .as_ref()
        .expect("a number")
    {
        nvml_wrapper::enums::device::SampleValue::U64(value) => *value,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_other_processes_do_is_seen() {
    schedule::alone();
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let run = format!("test-{}", std::process::id());
    let run = std::env::var("SIMGPU_RUN").unwrap_or(run);
    on_the_stand_in("what_other_processes_do_is_seen", &[("SIMGPU_RUN", &run)], || {
        if std::env::var_os("TEST_WORKER").is_some() {
            work_for_ever();
        }
        let nvml = Nvml::init().expect("NVML");
        let device = |index| nvml.device_by_index(index).expect("a device");
        let before = device(0).total_energy_consumption().expect("energy");
        let mut worker = test_again("what_other_processes_do_is_seen")
            .env("TEST_WORKER", "1")
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let output = BufReader::new(worker.stdout.take().expect("its output"));
        output
            .lines()
            .map_while(Result::ok)
            .find(|line| line.contains("works"))
            .expect("it works");
        std::thread::sleep(Duration::from_millis(1500));
        let rates = device(0).utilization_rates().expect("rates");
        assert!(rates.memory > 50 && rates.gpu == 0, "{rates:?}");
        assert_eq!(device(3).utilization_rates().expect("rates").memory, 0);
        let processes = device(0).running_compute_processes().expect("processes");
        assert_eq!(
            processes.iter().map(|process| process.pid).collect::<Vec<_>>(),
            [worker.id()]
        );
        let used = device(0).memory_info().expect("sizes").used;
        assert!((8_000_000..9_000_000).contains(&used), "{used}");
        // 1 MB a round by NVLink from the first to the second, 0.1 MB by PCIe to the first: KiB and bytes.
        let sent = field(&nvml, 0, 138) * 1024 * 18;
        let received = field(&nvml, 1, 139) * 1024 * 18;
        assert!(
            sent > 1_000_000 && sent.abs_diff(received) <= 2_000_000,
            "{sent} {received}"
        );
        assert_eq!((field(&nvml, 1, 138), field(&nvml, 3, 139)), (0, 0));
        let copied = field(&nvml, 0, 198);
        assert!(copied > 100_000, "{copied}");
        let rounds = field(&nvml, 0, 138) * 1024 * 18 / 1_000_000;
        assert!(
            (copied / 100_000).abs_diff(rounds) <= rounds / 2,
            "{copied} bytes in {rounds} rounds"
        );
        let throughput = device(0).pcie_throughput(PcieUtilCounter::Receive).expect("kB/s");
        assert!(throughput > 0);
        worker.kill().expect("killed");
        worker.wait().expect("ended");
        let info = device(0).memory_info().expect("sizes");
        assert_eq!(info.used, 0, "the dead use nothing");
        assert!(
            field(&nvml, 0, 138) * 1024 * 18 >= sent,
            "what has passed has passed"
        );
        assert!(device(0).total_energy_consumption().expect("energy") > before + 75_000);
        drop(nvml);
    });
    assert_nothing_is_left(&run);
}

/// Nothing that has a run's name is in any folder for memory, nor answers on a socket.
fn assert_nothing_is_left(run: &str) {
    let files = std::fs::read_dir("/dev/shm").into_iter().flatten();
    let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
    let left: Vec<String> = names.filter(|name| name.contains(run)).collect();
    assert!(left.is_empty(), "{left:?}");
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    assert!(!sockets.contains(run), "{sockets}");
}

#[test]
fn whoever_is_killed_leaves_nothing_and_others_go_on() {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Stdio};

    let name = "whoever_is_killed_leaves_nothing_and_others_go_on";
    let run = format!("killed-{}", std::process::id());
    let run = std::env::var("SIMGPU_RUN").unwrap_or(run);
    on_the_stand_in(name, &[("SIMGPU_RUN", &run)], || {
        if std::env::var_os("TEST_WORKER").is_some() {
            work_for_ever();
        }
        let start = || -> Child {
            let mut worker = test_again(name)
                .env("TEST_WORKER", "1")
                .stdout(Stdio::piped())
                .spawn()
                .expect("starts");
            let output = BufReader::new(worker.stdout.take().expect("its output"));
            let mut lines = output.lines().map_while(Result::ok);
            lines.find(|line| line.contains("works")).expect("it works");
            worker
        };
        let nvml = Nvml::init().expect("NVML");
        let seen = || -> Vec<u32> {
            let device = nvml.device_by_index(0).expect("a device");
            let processes = device.running_compute_processes().expect("processes");
            let mut pids: Vec<u32> = processes.iter().map(|process| process.pid).collect();
            pids.sort_unstable();
            pids
        };
        let eventually = |expected: &mut Vec<u32>| {
            expected.sort_unstable();
            let begun = Instant::now();
            while seen() != *expected {
                assert!(
                    begun.elapsed() < Duration::from_secs(10),
                    "{:?} {expected:?}",
                    seen()
                );
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        let kill = |worker: &mut Child| {
            worker.kill().expect("killed");
            worker.wait().expect("ended");
        };
        // The first answers, the second has the memory too, the third gets it of the second.
        let (mut first, mut second) = (start(), start());
        eventually(&mut vec![first.id(), second.id()]);
        kill(&mut first);
        eventually(&mut vec![second.id()]);
        let mut third = start();
        eventually(&mut vec![second.id(), third.id()]);
        kill(&mut second);
        kill(&mut third);
        eventually(&mut vec![]);
        // Nobody is left who has it but who only looks on: the next begins anew, and is seen.
        let mut fourth = start();
        eventually(&mut vec![fourth.id()]);
        kill(&mut fourth);
    });
    assert_nothing_is_left(&run);
}

#[test]
fn a_slowed_device_says_why() {
    on_the_stand_in("a_slowed_device_says_why", &[("SIMGPU_SLOW", "rank:0=2")], || {
        let nvml = Nvml::init().expect("NVML");
        let device = nvml.device_by_index(0).expect("a device");
        let reasons = || device.current_throttle_reasons().expect("reasons");
        assert_eq!(reasons(), ThrottleReasons::GPU_IDLE);
        assert_eq!(device.clock_info(Clock::SM).expect("a clock"), 345);
        let (context, stream) = open_device(0);
        let mut values = stream.clone_htod(&vec![1.0f32; 1 << 20]).expect("memory");
        stand_in::scale(&context, &stream, &mut values, &mut 1.0);
        stream.synchronize().expect("ends");
        assert_eq!(device.clock_info(Clock::SM).expect("a clock"), 990);
        assert_eq!(reasons(), ThrottleReasons::SW_THERMAL_SLOWDOWN);
        assert_eq!(device.temperature(TemperatureSensor::Gpu).expect("degrees"), 87);
        let errors = device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile);
        assert_eq!(errors.expect("a number"), 0);
        let place = MemoryLocation::Device;
        let errors = device.memory_error_counter(MemoryError::Corrected, EccCounter::Aggregate, place);
        assert_eq!(errors.expect("a number"), 0);
    });
}
