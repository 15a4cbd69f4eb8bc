//! Structures that the kernel programs and user space share, and how each is written to and read from bytes.
//!
//! User space never casts what comes out of the kernel: every structure is plain integers with its padding named,
//! and [`Event::read`] checks length and version first. The layout is part of [`ABI_VERSION`].
#![no_std]

mod address;
mod event;
mod map;

pub use address::{ANY_V4, ANY_V6, address, is_loopback, is_v4, mapped, words};
pub use event::{Event, Kind, Reason, Unreadable};
pub use map::{Counter, Net, Origin, Place, Sandbox, Socket, Traffic, listener};

/// Grows with every change of a structure below; written into every event.
pub const ABI_VERSION: u16 = 1;

/// Bytes of a task's name as the kernel keeps it, padded with NUL.
pub const COMM_BYTES: usize = 16;

/// Sizes of the maps. Every table is shared by the sandboxes of one session.
pub mod limits {
    pub const SANDBOXES: usize = 1024;
    /// Exact (cgroup, address, port) entries.
    pub const ALLOWED: usize = 16_384;
    /// CIDR entries.
    pub const NETS: usize = 4096;
    /// Connections that were begun and that the relay has not accepted yet.
    pub const ORIGINS: usize = 16_384;
    /// Ended connections whose byte counts are kept; the oldest is dropped first.
    pub const TRAFFIC: usize = 2048;
    /// Bytes of the event ring: a power of two, of whole pages.
    pub const RING: usize = 256 * 1024;
}
