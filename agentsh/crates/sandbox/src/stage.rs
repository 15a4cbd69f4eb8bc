//! The steps of a launch, named in its errors.

use std::fmt;
use std::io;

/// The failed step, its object, and the kernel's error.
#[derive(Debug)]
pub struct StageError {
    pub stage: &'static str,
    pub detail: String,
    pub source: io::Error,
}

impl fmt::Display for StageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.detail.is_empty() {
            write!(f, "{}: {}", self.stage, self.source)
        } else {
            write!(f, "{} {}: {}", self.stage, self.detail, self.source)
        }
    }
}

impl std::error::Error for StageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Names the step that a system call belongs to.
pub trait StageContext<T> {
    /// # Errors
    /// The error itself, with the step's name.
    fn at(self, stage: &'static str) -> Result<T, StageError>;
    /// # Errors
    /// The error itself, with the step's name and what it was about.
    fn on(self, stage: &'static str, detail: impl fmt::Display) -> Result<T, StageError>;
}

impl<T, E: Into<io::Error>> StageContext<T> for Result<T, E> {
    fn at(self, stage: &'static str) -> Result<T, StageError> {
        self.map_err(|error| StageError { stage, detail: String::new(), source: error.into() })
    }

    fn on(self, stage: &'static str, detail: impl fmt::Display) -> Result<T, StageError> {
        self.map_err(|error| StageError { stage, detail: detail.to_string(), source: error.into() })
    }
}
