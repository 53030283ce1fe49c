//! The analysis, on recordings that are built by hand or at random.

mod support;

mod advice;
mod by_hand;
mod chosen_steps;
mod clock_estimates;
mod clocks;
mod communicators;
mod compared;
mod declarations;
mod derived;
mod hangs;
mod json;
mod matching;
mod partials;
mod properties;
mod stacks;
mod state;
mod steps;
