//! Structures that the kernel programs and user space share.
//!
//! Nothing stands here yet: every sandbox has an empty network namespace, and the programs that put
//! names on its connections come with network enforcement.
#![no_std]
