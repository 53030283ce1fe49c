use crate::error::Error;
use crate::model::Piece;
use crate::store::Store;
use clap::Args;
use std::path::PathBuf;
#[derive(Args, Debug, Clone)]
pub(crate) struct CheckpointOptions {
    #[arg(long)]
    pub(crate) save: Option<PathBuf>,
    #[arg(long)]
    pub(crate) resume: Option<PathBuf>,
}
impl CheckpointOptions {
    pub(crate) fn due(&self, _done: u64, _steps: u64) -> Option<&std::path::Path> {
        None
    }
}
pub(crate) struct State {
    pub(crate) step: u64,
    pub(crate) shape: String,
    pub(crate) seed: u64,
    pub(crate) scale: f32,
    pub(crate) good_steps: u64,
    pub(crate) parameters: Vec<f32>,
    pub(crate) moments: Vec<Vec<f32>>,
}
pub(crate) struct Part {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) parameters: Vec<f32>,
    pub(crate) moments: Vec<Vec<f32>>,
}
pub(crate) fn collect(
    _s: &Store,
    _p: Option<&Part>,
    _t: usize,
) -> Result<Option<(Vec<f32>, Vec<Vec<f32>>)>, Error> {
    Ok(None)
}
pub(crate) fn write(_p: &std::path::Path, _s: &State) -> Result<(), Error> {
    Ok(())
}
pub(crate) fn distribute(_s: &Store, _p: &std::path::Path, _shape: &str, _t: usize) -> Result<State, Error> {
    Err(Error::new("no"))
}
