//! What can go wrong in a workload, as one line.

use std::fmt;

/// One line: what went wrong.
#[derive(Debug)]
pub struct Error(String);

impl Error {
    /// An error of this text.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl From<cudarc::driver::DriverError> for Error {
    fn from(error: cudarc::driver::DriverError) -> Self {
        use cudarc::driver::sys::CUresult;

        match error.0 {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Self::new(
                "the GPU is out of memory: take a smaller --batch or --hidden, or --checkpoint, or more ranks",
            ),
            _ => Self(format!("CUDA: {error}")),
        }
    }
}

impl From<cudarc::cublas::result::CublasError> for Error {
    fn from(error: cudarc::cublas::result::CublasError) -> Self {
        Self(format!("cuBLAS: {error}"))
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}
