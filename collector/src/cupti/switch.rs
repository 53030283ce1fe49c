//! Switching kinds and calls on and off, and telling whose they are.

use super::Cupti;
use super::find::driver_version;
use super::functions::{CHOSEN_CALLS_SINCE, SUCCESS};
use super::lost;
use super::start::SUBSCRIBER;
use crate::callbacks::{DRIVER_API, RUNTIME_API};
use crate::decode::{PROBE, wanted_callbacks, work_callbacks};
use gputrace_trace::options::CollectorOptions;

use super::wanted::wanted_kinds;
use crate::records::kind;
use crate::user_defined::Second;
use crate::{buffers, kinds, stacks};
use std::sync::atomic::Ordering;

impl Cupti {
    /// Asks for a kind's records. Gives CUPTI's result.
    pub(super) fn enable(&self, activity: u32) -> u32 {
        match (self.second(), self.functions().enable) {
            (Some(second), _) => {
                let calls = self.calls.iter().filter(|(api, _)| *api == activity);
                second.enable(activity, calls.map(|(_, callback)| *callback).collect())
            }
            // SAFETY: a plain value; an unknown kind is an error code.
            (None, Some(enable)) => unsafe { enable(activity) },
            (None, None) => SUCCESS,
        }
    }

    /// Asks for no more records of a kind.
    fn disable(&self, activity: u32) {
        match (self.second(), self.functions().disable) {
            (Some(second), _) => second.disable(activity),
            // SAFETY: a plain value. What CUPTI refuses to switch off is left out when it comes.
            (None, Some(disable)) => drop(unsafe { disable(activity) }),
            (None, None) => {}
        }
    }

    /// Switches the calls of an API that are recorded on one by one, or [`PROBE`] alone unless `all`, so that the others make no
    /// records. Gives whether that was possible (since CUDA 12.5): else the whole kind is to be switched on, and what is not
    /// wanted left out later.
    pub(super) fn enable_calls(&mut self, api: u32, all: bool) -> bool {
        let enable = self.enable_call(api);
        if enable.is_none() && !self.chooses_calls() {
            return false;
        }
        let name_of = |api, callback| self.callback_name(api, callback);
        let is_probe = |callback| name_of(api, callback).as_deref() == Some(PROBE);
        let mut enabled = wanted_callbacks(api, name_of);
        enabled.retain(|&callback| {
            (all || is_probe(callback))
                // SAFETY: plain values; a call that CUPTI does not let be chosen is an error code.
                && enable.is_none_or(|enable| unsafe { enable(callback, 1) } == SUCCESS)
        });
        let has_probe = api == kind::DRIVER && enabled.iter().any(|callback| is_probe(*callback));
        let any = !enabled.is_empty();
        let enabled: Vec<(u32, u32)> = enabled.into_iter().map(|callback| (api, callback)).collect();
        self.calls = [self.calls, &enabled].concat().leak();
        // As one of several subscribers they are handed over when the kind is switched on.
        let is_on = enable.is_some() && any;
        self.is_probed |= is_on && has_probe;
        is_on
    }

    /// Whether a kind of calls is switched on with a list of those that are wanted.
    fn chooses_calls(&self) -> bool {
        self.is_one_of_several() && self.version >= CHOSEN_CALLS_SINCE
    }

    /// What switches one call on or off; none as one of several subscribers.
    fn enable_call(&self, api: u32) -> Option<unsafe extern "C" fn(u32, u8) -> u32> {
        if self.is_one_of_several() {
            None
        } else if api == kind::DRIVER {
            self.functions().enable_driver_call
        } else {
            self.functions().enable_runtime_call
        }
    }

    /// The kinds that are switched off and on: not those of which each record comes once only.
    fn switched_kinds(&self) -> impl Iterator<Item = u32> {
        let kinds = self.kinds.iter().copied();
        let asked = |activity: &u32| kinds::of(*activity).and_then(|kind| kind.asked.by());
        kinds.filter(move |activity| asked(activity).is_some())
    }

    pub(super) fn switch_calls(&self, on: bool) {
        for &(api, callback) in self.calls {
            if let Some(enable) = self.enable_call(api) {
                // SAFETY: plain values.
                unsafe { enable(callback, u8::from(on)) };
            }
        }
    }

    /// Switches all kinds off or on, but those of which each record comes once only.
    pub(crate) fn switch(&self, on: bool) {
        if on && !self.are_kernels_recorded() {
            // Another profiler may have come and gone.
            self.take_over();
            return;
        }
        for activity in self.switched_kinds() {
            if on {
                self.enable(activity);
            } else {
                self.disable(activity);
            }
        }
        self.switch_calls(on);
        if stacks::are_wanted() {
            self.tell_of_launches(on);
        }
    }

    /// From now on stacks of launches are recorded, or not.
    pub(crate) fn record_stacks(&self, wanted: bool) {
        if stacks::want(wanted) != wanted {
            self.tell_of_launches(wanted);
        }
    }

    /// Has CUPTI call us back for each call that puts work on a device, or no longer.
    fn tell_of_launches(&self, on: bool) {
        let Some(enable_callback) = self.functions().enable_callback else {
            return;
        };
        let alone = || SUBSCRIBER.load(Ordering::Relaxed);
        let subscriber = self.second().map_or_else(alone, Second::subscriber);
        for (api, domain) in [(kind::DRIVER, DRIVER_API), (kind::RUNTIME, RUNTIME_API)] {
            for id in work_callbacks(api, |api, callback| self.callback_name(api, callback)) {
                // SAFETY: plain values; a CUPTI that does not know a callback refuses it, which costs those stacks.
                unsafe { enable_callback(u32::from(on), subscriber, domain, id) };
            }
        }
    }

    /// Of what is switched on, what other options than those of the start leave out; and in words what they want and is not on.
    pub(crate) fn narrowed(&self, options: &CollectorOptions) -> (Vec<u32>, Vec<&'static str>) {
        let wanted = wanted_kinds(options, self.version);
        let on = || {
            self.kinds
                .iter()
                .copied()
                .chain(self.calls.iter().map(|(api, _)| *api))
        };
        let is_shown = |activity: &u32| {
            wanted
                .iter()
                .any(|kind| kind.activity == *activity && !kind.is_hidden)
        };
        let missing = wanted
            .iter()
            .filter(|kind| !kind.is_hidden && !on().any(|activity| activity == kind.activity));
        let hidden = on().filter(|activity| !is_shown(activity)).collect();
        (hidden, missing.map(|kind| kind.what).collect())
    }

    /// Registers our buffers again and switches all kinds on again, after another profiler had its own.
    pub(crate) fn take_over(&self) {
        let (Some(register), Some(enable)) = (self.functions().register, self.functions().enable) else {
            return;
        };
        // SAFETY: as in `start`.
        unsafe {
            register(buffers::requested, buffers::completed);
            for activity in self.switched_kinds() {
                enable(activity);
            }
        }
        self.switch_calls(true);
    }

    /// Whether anybody in this process has CUPTI record kernels. `true` where this CUPTI does not tell.
    pub(crate) fn are_kernels_recorded(&self) -> bool {
        let (true, Some(enable), Some(disable)) = (
            self.tells_of_kernels,
            self.functions().enable,
            self.functions().disable,
        ) else {
            return true;
        };
        // SAFETY: plain values. Kernels one at a time are possible only as long as nobody records them as they run.
        unsafe {
            let is_free = enable(kind::KERNEL) == SUCCESS;
            if is_free {
                disable(kind::KERNEL);
            }
            !is_free
        }
    }

    /// Makes a call of which CUPTI has a record, and which does nothing else. Gives whether it was made, and recorded by someone.
    pub(crate) fn call_driver(&self) -> bool {
        self.is_probed && !lost::is_lost() && driver_version().is_some()
    }
}
