//! Other people's formats: what is written, read back, and said by their own readers.

#[path = "../../tests/common/consumers/mod.rs"]
mod consumers;
#[path = "support/odd.rs"]
mod odd;
mod support;

mod chrome;
mod chrome_perfetto;
mod chrome_round_trip;
mod chrome_rules;
mod nsight;
mod parquet;
mod perfetto;
mod real_consumer;
mod tensorboard;
mod xplane;
