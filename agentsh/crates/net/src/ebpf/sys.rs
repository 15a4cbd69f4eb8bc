//! The four commands of the `bpf` system call that agentsh uses. aya's loader parses the kernel's BTF and probes 20
//! features first, which takes most of 40 ms.

#![allow(unsafe_code, reason = "bpf(2) takes pointers to memory that the caller keeps alive")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use aya_obj::generated::{bpf_attr, bpf_cmd, bpf_insn};

/// A program's load and attach types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hook {
    pub program_type: u32,
    pub attach_type: u32,
}

pub fn load_types(types: &[u8]) -> io::Result<OwnedFd> {
    let mut attributes = zeroed();
    // SAFETY: every field of the union's member is a plain integer.
    let load = unsafe { &mut attributes.__bindgen_anon_7 };
    load.btf = types.as_ptr().addr() as u64;
    load.btf_size = length(types.len())?;
    bpf_descriptor(bpf_cmd::BPF_BTF_LOAD, &mut attributes)
}

/// The verifier fills `log`, unless it is empty.
pub fn load_program(
    name: &str,
    hook: Hook,
    license: &std::ffi::CStr,
    instructions: &[bpf_insn],
    log: &mut [u8],
) -> io::Result<OwnedFd> {
    let mut attributes = zeroed();
    // SAFETY: every field of the union's member is a plain integer.
    let load = unsafe { &mut attributes.__bindgen_anon_3 };
    for (place, byte) in load.prog_name.iter_mut().take(15).zip(name.bytes()) {
        *place = byte as std::ffi::c_char;
    }
    load.prog_type = hook.program_type;
    load.expected_attach_type = hook.attach_type;
    load.license = license.as_ptr().addr() as u64;
    load.insns = instructions.as_ptr().addr() as u64;
    load.insn_cnt = length(instructions.len())?;
    if !log.is_empty() {
        load.log_level = 1;
        load.log_buf = log.as_mut_ptr().addr() as u64;
        load.log_size = length(log.len())?;
    }
    bpf_descriptor(bpf_cmd::BPF_PROG_LOAD, &mut attributes)
}

/// Other links on the cgroup stay; closing the last descriptor detaches.
pub fn attach(program: BorrowedFd<'_>, cgroup: BorrowedFd<'_>, hook: Hook) -> io::Result<OwnedFd> {
    let mut attributes = zeroed();
    attributes.link_create.__bindgen_anon_1.prog_fd = program.as_raw_fd().cast_unsigned();
    attributes.link_create.__bindgen_anon_2.target_fd = cgroup.as_raw_fd().cast_unsigned();
    attributes.link_create.attach_type = hook.attach_type;
    bpf_descriptor(bpf_cmd::BPF_LINK_CREATE, &mut attributes)
}

/// Effective on return, even if others hold the link.
pub fn detach(link: BorrowedFd<'_>) -> io::Result<()> {
    let mut attributes = zeroed();
    attributes.link_detach.link_fd = link.as_raw_fd().cast_unsigned();
    bpf(bpf_cmd::BPF_LINK_DETACH, &mut attributes).map(|_| ())
}

/// Fills a map of constants, if there is one.
#[cfg(feature = "ebpf-log")]
pub fn fill(map: BorrowedFd<'_>, constants: &[u8]) -> io::Result<()> {
    if constants.is_empty() {
        return Ok(());
    }
    let (key, mut attributes) = (0_u32, zeroed());
    // SAFETY: every field of the union's member is a plain integer.
    let update = unsafe { &mut attributes.__bindgen_anon_2 };
    update.map_fd = map.as_raw_fd().cast_unsigned();
    update.key = std::ptr::from_ref(&key).addr() as u64;
    update.__bindgen_anon_1.value = constants.as_ptr().addr() as u64;
    bpf(bpf_cmd::BPF_MAP_UPDATE_ELEM, &mut attributes).map(|_| ())
}

fn zeroed() -> bpf_attr {
    // SAFETY: a union of integers, arrays of integers and structures of them; the kernel wants unused bytes zero.
    unsafe { std::mem::zeroed() }
}

fn length(count: usize) -> io::Result<u32> {
    u32::try_from(count).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

fn bpf_descriptor(command: bpf_cmd, attributes: &mut bpf_attr) -> io::Result<OwnedFd> {
    let descriptor = bpf(command, attributes)?;
    // SAFETY: these commands return a new descriptor, close-on-exec, that is ours.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn bpf(command: bpf_cmd, attributes: &mut bpf_attr) -> io::Result<i32> {
    loop {
        // SAFETY: all pointers in `attributes` come from references that live until this function's callers return.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                command as libc::c_long,
                std::ptr::from_mut(attributes),
                size_of::<bpf_attr>(),
            )
        };
        if result >= 0 {
            return i32::try_from(result).map_err(|_| io::ErrorKind::InvalidData.into());
        }
        let error = io::Error::last_os_error();
        // The verifier returns EAGAIN if a signal is pending.
        if !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) {
            return Err(error);
        }
    }
}
