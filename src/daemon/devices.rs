//! Asking NVML how the machine's GPUs are, for the daemon.

use gputrace_daemon::Handle;
use gputrace_daemon::devices::Seen;
use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::Clock;
use nvml_wrapper::enums::event::XidError;

use crate::device::Device;
use crate::nvml;

/// How often clocks are asked for, milliseconds; errors are told of at once.
const PERIOD_MS: u32 = 1000;

/// Begins to ask, where there is anybody to ask; says whether there is.
pub fn watch(handle: Handle) -> bool {
    let Ok(nvml) = nvml::open(Device::Cuda) else {
        return false;
    };
    let watching = std::thread::Builder::new()
        .name("devices".to_owned())
        .spawn(move || while look(&nvml, &handle) {});
    watching.is_ok()
}

/// Looks at all devices, and waits for errors until the next look is due. Says whether anybody still wants to know.
fn look(nvml: &Nvml, handle: &Handle) -> bool {
    let count = nvml.device_count().unwrap_or(0);
    for number in 0..count {
        if let Ok(device) = nvml.device_by_index(number) {
            let seen = Seen {
                device: number,
                uuid: device.uuid().ok(),
                clock_mhz: device.clock_info(Clock::SM).ok(),
                throttled: device.current_throttle_reasons().ok().and_then(held_down),
                xid: None,
            };
            if !handle.tell(seen) {
                return false;
            }
        }
    }
    let waited = wait_for_error(nvml, count);
    match waited {
        Some(Some((device, xid))) => handle.tell(Seen {
            device,
            xid: Some(xid),
            ..Seen::default()
        }),
        Some(None) => true,
        // A driver without events: clocks are watched all the same.
        None => {
            std::thread::sleep(std::time::Duration::from_millis(PERIOD_MS.into()));
            true
        }
    }
}

/// The device and number of the next error within the period, if there is one; nothing where NVML tells of none.
fn wait_for_error(nvml: &Nvml, count: u32) -> Option<Option<(u32, u64)>> {
    let mut set = nvml.create_event_set().ok()?;
    for number in 0..count {
        let device = nvml.device_by_index(number).ok()?;
        set = device.register_events(EventTypes::CRITICAL_XID_ERROR, set).ok()?;
    }
    match set.wait(PERIOD_MS) {
        Ok(event) => {
            let number = event.device.index().ok()?;
            let xid = match event.event_data {
                Some(XidError::Value(xid)) => xid,
                _ => 0,
            };
            Some(Some((number, xid)))
        }
        Err(nvml_wrapper::error::NvmlError::Timeout) => Some(None),
        Err(_) => None,
    }
}

/// Why a clock is held down, in words; nothing where it is as the program and its user want it. The usual limit of power is no
/// fault: most training runs at it.
fn held_down(reasons: ThrottleReasons) -> Option<String> {
    let words = [
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, "heat, by hardware"),
        (ThrottleReasons::SW_THERMAL_SLOWDOWN, "heat"),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "power brake"),
    ];
    let mut found: Vec<&str> = words
        .iter()
        .filter(|(reason, _)| reasons.contains(*reason))
        .map(|(_, word)| *word)
        .collect();
    if found.is_empty() && reasons.contains(ThrottleReasons::HW_SLOWDOWN) {
        found.push("hardware slowdown");
    }
    (!found.is_empty()).then(|| found.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heat_and_brakes_hold_clocks_down_and_usual_limits_do_not() {
        let usual = ThrottleReasons::GPU_IDLE | ThrottleReasons::SW_POWER_CAP;
        assert_eq!(held_down(usual), None);
        let hot = usual | ThrottleReasons::SW_THERMAL_SLOWDOWN;
        assert_eq!(held_down(hot).as_deref(), Some("heat"));
        let brake = ThrottleReasons::HW_SLOWDOWN | ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN;
        assert_eq!(held_down(brake).as_deref(), Some("power brake"));
        assert_eq!(held_down(ThrottleReasons::HW_SLOWDOWN).as_deref(), Some("hardware slowdown"));
    }
}
