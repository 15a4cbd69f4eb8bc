//! Which server may receive another one's data. Labels decide; matches explain.

pub mod labels;

mod decide;

pub use decide::{Config, Flow, FlowFinding, Judged};
pub use labels::{Annotations, Labels, Role, Sink, Source};
