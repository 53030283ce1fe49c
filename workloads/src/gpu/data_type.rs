//! The element types that kernels and cuBLAS compute with.

/// What an array's elements are. Arithmetic is f32 for all of them; a value is rounded when it is stored.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum DataType {
    #[default]
    F32,
    Bf16,
    F16,
}

impl DataType {
    pub(crate) const ALL: [Self; 3] = [Self::F32, Self::Bf16, Self::F16];

    /// What it is called.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }

    /// Bytes of one element.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }

    /// What a kernel for this type has behind its name.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::F32 => "",
            Self::Bf16 => "_bf16",
            Self::F16 => "_f16",
        }
    }
}
