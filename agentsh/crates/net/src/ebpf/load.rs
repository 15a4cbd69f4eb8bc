//! Loads maps and programs from the object file.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Mutex;

use aya::maps::MapData;
use aya_obj::btf::BtfFeatures;
use aya_obj::generated::{bpf_attach_type, bpf_insn, bpf_prog_type};
use aya_obj::{Map, Object, ProgramSection};

use super::EbpfError;
use super::sys::{self, Hook};

/// Loaded maps and programs, not attached yet.
pub struct LoadedPrograms {
    pub maps: BTreeMap<String, MapData>,
    pub programs: Vec<Program>,
}

#[derive(Debug)]
pub struct Program {
    pub name: String,
    pub hook: Hook,
    pub descriptor: OwnedFd,
}

pub fn load(bytes: &[u8]) -> Result<LoadedPrograms, EbpfError> {
    let mut object = Object::parse(bytes).map_err(damaged)?;
    let types = load_types(&mut object)?;
    let descriptions = std::mem::take(&mut object.maps);
    let maps = make_maps(&descriptions, &types)?;
    relocate_maps(&mut object, &descriptions, &maps)?;
    Ok(LoadedPrograms { maps, programs: load_programs(&object)? })
}

struct Code<'o> {
    name: &'o str,
    hook: Hook,
    license: &'o CStr,
    instructions: &'o [bpf_insn],
}

/// Loads with two threads, because the verifier is slow; the longest program first.
fn load_programs(object: &Object) -> Result<Vec<Program>, EbpfError> {
    let mut queue = Vec::new();
    for (name, program) in &object.programs {
        let function = object
            .functions
            .get(&program.function_key())
            .ok_or_else(|| EbpfError::Object(format!("{name} has no code")))?;
        queue.push(Code {
            name,
            hook: hook(name, &program.section)?,
            license: &program.license,
            instructions: &function.instructions,
        });
    }
    queue.sort_by_key(|code| code.instructions.len());
    let queue = Mutex::new(queue);
    let next = || queue.lock().ok()?.pop();
    let work = || std::iter::from_fn(next).map(|code| code.load()).collect::<Result<Vec<_>, _>>();
    let (here, there) = std::thread::scope(|scope| {
        // Without a thread, this one loads all.
        let there = std::thread::Builder::new().spawn_scoped(scope, work).ok();
        (work(), there.map(std::thread::ScopedJoinHandle::join))
    });
    let mut programs = here?;
    if let Some(there) = there {
        let ended = |_| EbpfError::Object("a thread that loads programs ended".to_owned());
        programs.extend(there.map_err(ended)??);
    }
    Ok(programs)
}

impl Code<'_> {
    fn load(&self) -> Result<Program, EbpfError> {
        let Self { name, hook, license, instructions } = *self;
        let load = |log: &mut [u8]| sys::load_program(name, hook, license, instructions, log);
        let descriptor = load(&mut []).map_err(|source| {
            let mut log = vec![0; 256 * 1024];
            let _ = load(&mut log);
            EbpfError::Program { name: name.to_owned(), source, log: last_lines(&log) }
        })?;
        Ok(Program { name: name.to_owned(), hook, descriptor })
    }
}

/// Socket storage needs BTF of its type.
fn load_types(object: &mut Object) -> Result<OwnedFd, EbpfError> {
    // All supported kernels have these.
    let features = BtfFeatures::new(true, true, true, true, true, true, true, true);
    let types = object
        .fixup_and_sanitize_btf(&features)
        .map_err(damaged)?
        .ok_or_else(|| EbpfError::Object("it has no types".to_owned()))?
        .to_bytes();
    sys::load_types(&types).map_err(EbpfError::Types)
}

fn make_maps<'a>(
    descriptions: impl IntoIterator<Item = (&'a String, &'a Map)>,
    types: &OwnedFd,
) -> Result<BTreeMap<String, MapData>, EbpfError> {
    let make = |(name, description): (&String, &Map)| {
        let map = MapData::create(description.clone(), name, Some(types.as_fd()))
            .map_err(|error| EbpfError::Map { name: name.clone(), why: chain(&error) })?;
        #[cfg(feature = "ebpf-log")]
        // Log texts; the shipped programs have no map of constants.
        sys::fill(map.fd().as_fd(), description.data())
            .map_err(|error| EbpfError::Map { name: name.clone(), why: chain(&error) })?;
        Ok((name.clone(), map))
    };
    descriptions.into_iter().map(make).collect()
}

fn relocate_maps<'a>(
    object: &mut Object,
    descriptions: impl IntoIterator<Item = (&'a String, &'a Map)>,
    maps: &BTreeMap<String, MapData>,
) -> Result<(), EbpfError> {
    let sections = object.functions.keys().map(|(section, _)| *section).collect();
    let descriptors = descriptions.into_iter().filter_map(|(name, description)| {
        let map = maps.get(name)?;
        Some((name.as_str(), map.fd().as_fd().as_raw_fd(), description))
    });
    object.relocate_maps(descriptors, &sections).map_err(damaged)?;
    object.relocate_calls(&sections).map_err(damaged)
}

fn hook(name: &str, section: &ProgramSection) -> Result<Hook, EbpfError> {
    let (program_type, attach_type) = match section {
        ProgramSection::CgroupSockAddr { attach_type } => {
            (bpf_prog_type::BPF_PROG_TYPE_CGROUP_SOCK_ADDR, bpf_attach_type::from(*attach_type))
        }
        ProgramSection::CgroupSock { attach_type } => {
            (bpf_prog_type::BPF_PROG_TYPE_CGROUP_SOCK, bpf_attach_type::from(*attach_type))
        }
        ProgramSection::CgroupSkb { .. } => {
            (bpf_prog_type::BPF_PROG_TYPE_CGROUP_SKB, bpf_attach_type::BPF_CGROUP_INET_EGRESS)
        }
        ProgramSection::SockOps => {
            (bpf_prog_type::BPF_PROG_TYPE_SOCK_OPS, bpf_attach_type::BPF_CGROUP_SOCK_OPS)
        }
        other => return Err(EbpfError::Object(format!("{name} is in the section {other:?}"))),
    };
    Ok(Hook { program_type: program_type as u32, attach_type: attach_type as u32 })
}

fn damaged(error: impl std::error::Error) -> EbpfError {
    EbpfError::Object(chain(&error))
}

/// An error with its causes, on one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text += &format!(": {cause}");
        next = cause.source();
    }
    text
}

/// The end of the verifier's log, which has the reason.
fn last_lines(log: &[u8]) -> String {
    let text = String::from_utf8_lossy(log.split(|byte| *byte == 0).next().unwrap_or_default());
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let from = lines.len().saturating_sub(8);
    lines.iter().skip(from).map(|line| format!("\n  {line}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verifier_log_is_cut_to_its_end() {
        let log = b"0: one\n\n1: two\nR0 !read_ok\0\0\0";
        assert_eq!(last_lines(log), "\n  0: one\n  1: two\n  R0 !read_ok");
        assert_eq!(last_lines(&[0; 16]), "");
        let long: String = (0..100).map(|line| format!("{line}\n")).collect();
        assert!(last_lines(long.as_bytes()).starts_with("\n  92\n"));
    }

    #[test]
    fn malformed_ebpf_object_is_refused() {
        for bytes in [&b""[..], b"\x7fELF", &[0; 4096]] {
            assert!(matches!(load(bytes), Err(EbpfError::Object(_))));
        }
        let cut = super::super::object::BYTES.get(..9000).unwrap();
        assert!(matches!(load(cut), Err(EbpfError::Object(_))));
    }
}
