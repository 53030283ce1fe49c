//! Asking NVML how the machine's GPUs are, for the daemon.

use std::time::{Duration, Instant};

use gputrace_daemon::Handle;
use gputrace_daemon::devices::{Seen, Xid};
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::Clock;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::{EventSet, Nvml};

use crate::device::Device;
use crate::nvml;

/// How often clocks are asked for; errors are told of at once.
const PERIOD: Duration = Duration::from_secs(1);

/// Begins to ask, where there is anybody to ask; says whether there is.
pub fn watch(handle: Handle) -> bool {
    let Ok(nvml) = nvml::open(Device::Cuda) else {
        return false;
    };
    let watching = std::thread::Builder::new()
        .name("devices".to_owned())
        .spawn(move || {
            let count = nvml.device_count().unwrap_or(0);
            // A driver without events: clocks are watched all the same.
            let errors = errors_of(&nvml, count);
            while look(&nvml, count, errors.as_ref(), &handle) {}
        });
    watching.is_ok()
}

/// What the driver tells of all devices' errors by.
fn errors_of(nvml: &Nvml, count: u32) -> Option<EventSet<'_>> {
    let mut set = nvml.create_event_set().ok()?;
    for number in 0..count {
        let device = nvml.device_by_index(number).ok()?;
        set = device.register_events(EventTypes::CRITICAL_XID_ERROR, set).ok()?;
    }
    Some(set)
}

/// Looks at all devices, and waits for errors until the next look is due. Says whether anybody still wants to know.
fn look(nvml: &Nvml, count: u32, errors: Option<&EventSet<'_>>, handle: &Handle) -> bool {
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
    let until = Instant::now() + PERIOD;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        let wait_ms = u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1);
        let Some(event) = errors.and_then(|errors| errors.wait(wait_ms).ok()) else {
            // Nothing came, or NVML can't wait: not to ask it again at once.
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
            break;
        };
        if let (Ok(device), Some(error)) = (event.device.index(), event.event_data) {
            let number = match error {
                XidError::Value(number) => Some(number),
                XidError::Unknown => None,
            };
            let seen = Seen {
                device,
                xid: Some(Xid(number)),
                ..Seen::default()
            };
            if !handle.tell(seen) {
                return false;
            }
        }
    }
    true
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
        assert_eq!(
            held_down(ThrottleReasons::HW_SLOWDOWN).as_deref(),
            Some("hardware slowdown")
        );
    }
}
