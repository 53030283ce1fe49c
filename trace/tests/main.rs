//! Recordings as files: what is written is read, whatever happened to them in between.

#[path = "../../tests/common/consumers/mod.rs"]
mod consumers;
#[macro_use]
mod support;
#[path = "support/training.rs"]
mod training;

mod damage;
mod documents;
mod full_disk;
mod out_of_place;
mod real_consumer;
mod round_trip;
mod size;
