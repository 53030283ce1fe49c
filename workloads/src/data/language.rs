pub(crate) struct Language {
    context: usize,
}
impl Language {
    pub(crate) fn new(_s: usize, context: usize, _v: usize, _seed: u64) -> Self {
        Self { context }
    }
    pub(crate) fn entropy_floor_nats(&self) -> f64 {
        0.0
    }
}
impl super::DataSet for Language {
    fn samples(&self) -> usize {
        1
    }
    fn input_bytes(&self) -> usize {
        self.context * 4
    }
    fn target_bytes(&self) -> usize {
        self.context * 4
    }
    fn gather(&self, _i: &[usize], _x: &mut [u8], _y: &mut [u8]) {}
}
