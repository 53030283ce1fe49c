//! What a stretch of a device's time is made of: its parts, which do not overlap and sum to it.
//!
//! The terminal, the HTML report and the page show these, so that "compute" or "idle" is one time in all of them.

use std::ops::AddAssign;

use gputrace_trace::measures::Measures;
use serde::{Deserialize, Serialize};

/// A part of a device's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name in the JSON.
    pub name: &'static str,
    /// What it is called in tables and pictures.
    pub label: &'static str,
    /// What it is, in a line.
    pub definition: &'static str,
}

macro_rules! parts {
    ($($name:ident: $label:literal, $definition:literal;)*) => {
        /// Parts of a stretch of time, in nanoseconds. Each moment is in one of them.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Parts {
            $(#[doc = $definition] pub $name: i64,)*
        }

        /// What the parts are, in the order in which they are drawn.
        pub const PARTS: [Part; 5] = [$(
            Part { name: stringify!($name), label: $label, definition: $definition },
        )*];

        impl Parts {
            /// Their times, in the order of [`PARTS`].
            #[must_use]
            pub fn times(&self) -> [i64; PARTS.len()] {
                [$(self.$name,)*]
            }
        }

        impl AddAssign for Parts {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

parts! {
    compute: "compute", "kernels compute, and nothing is communicated";
    hidden: "hidden communication", "communication while kernels compute: it costs no time of its own";
    exposed: "exposed communication", "communication while nothing computes";
    copies: "copies", "copies and memsets while nothing else runs";
    idle: "idle", "the device runs nothing";
}

impl Parts {
    /// Those of a stretch of `duration_ns` with these measures.
    #[must_use]
    pub fn of(measures: &Measures, duration_ns: i64) -> Self {
        Self {
            compute: measures.compute_ns - measures.communication_hidden_ns,
            hidden: measures.communication_hidden_ns,
            exposed: measures.communication_exposed_ns,
            copies: measures.busy_ns - measures.compute_ns - measures.communication_exposed_ns,
            idle: duration_ns - measures.busy_ns,
        }
    }

    /// The parts, each with its time.
    pub fn each(&self) -> impl Iterator<Item = (&'static Part, i64)> {
        PARTS.iter().zip(self.times())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_sum_to_the_stretch() {
        let measures = Measures {
            busy_ns: 65,
            compute_ns: 50,
            communication_ns: 30,
            communication_hidden_ns: 20,
            communication_exposed_ns: 10,
            ..Measures::default()
        };
        let parts = Parts::of(&measures, 100);
        assert_eq!(parts.times(), [30, 20, 10, 5, 35]);
    }
}
