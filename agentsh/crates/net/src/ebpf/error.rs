//! Why the eBPF programs cannot be used. `doctor` prints it; `--network auto` continues without them.

use std::io;

use thiserror::Error;

#[derive(Debug, Error)]
pub enum EbpfError {
    #[error(
        "network rules in the kernel need the capabilities CAP_BPF and CAP_NET_ADMIN; this process lacks {missing}"
    )]
    Capability { missing: String },
    #[error("network rules in the kernel need control groups of version 2, and none are mounted")]
    NoCgroup2,
    #[error("the built-in network programs are damaged: {0}")]
    Object(String),
    #[error("the kernel rejected the types of the network maps (BPF_BTF_LOAD): {0}")]
    Types(#[source] io::Error),
    #[error("the kernel could not create the network map {name}: {why}")]
    Map { name: String, why: String },
    #[error("the kernel refused the network program {name} (BPF_PROG_LOAD): {source}{log}")]
    Program {
        name: String,
        #[source]
        source: io::Error,
        /// Empty, or a line break and the end of the verifier's log.
        log: String,
    },
    #[error(
        "the network program {name} could not be attached to the control group (BPF_LINK_CREATE): {source}"
    )]
    Attach {
        name: String,
        #[source]
        source: io::Error,
    },
    #[error("the kernel did not {what}: {why}")]
    Table { what: &'static str, why: String },
    #[error("another reader already reads the network events")]
    EventsTaken,
    #[error("network events cannot be read: {0}")]
    Events(#[source] io::Error),
}
