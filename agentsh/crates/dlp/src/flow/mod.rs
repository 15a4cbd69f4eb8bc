//! Which server may hear what another one said. Labels decide; matches explain.

pub mod labels;

mod decide;

pub use decide::{Config, Flow, Flowed, Judged};
pub use labels::{Annotations, Labels, Role, Sink, Source};
