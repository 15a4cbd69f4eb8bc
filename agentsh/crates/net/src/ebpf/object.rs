//! The compiled programs, built by `cargo xtask ebpf build` and compared by `cargo xtask ebpf verify`.

use sha2::{Digest, Sha256};

/// The stripped ELF object, aligned for its reader.
#[cfg(not(feature = "ebpf-log"))]
pub static BYTES: &[u8] = aya::include_bytes_aligned!("object/agentsh.bpf.o");

/// The logging programs of `cargo xtask ebpf log`.
#[cfg(feature = "ebpf-log")]
pub static BYTES: &[u8] = aya::include_bytes_aligned!(env!("AGENTSH_BPF_OBJECT"));

/// The origin of the object: compiler, linker, flags, digest.
pub static FACTS: &str = include_str!("object/agentsh.bpf.json");

/// SHA-256 of [`BYTES`], lowercase hexadecimal.
#[must_use]
pub fn sha256() -> String {
    let digest = Sha256::digest(BYTES);
    agentsh_base::hex(&digest)
}

#[cfg(all(test, not(feature = "ebpf-log")))]
mod tests {
    use super::*;

    #[test]
    fn recorded_facts_match_the_ebpf_object() {
        let facts: serde_json::Value = serde_json::from_str(FACTS).unwrap();
        assert_eq!(facts["sha256"], sha256());
        assert_eq!(facts["bytes"], BYTES.len());
        assert_eq!(facts["abi"], agentsh_ebpf::ABI_VERSION);
        assert!(BYTES.as_ptr().addr().is_multiple_of(8));
    }

    #[test]
    fn ebpf_object_contains_no_path_of_the_build_machine() {
        let text: Vec<u8> =
            BYTES.iter().map(|byte| if byte.is_ascii_graphic() { *byte } else { b' ' }).collect();
        let text = String::from_utf8(text).unwrap();
        let paths: Vec<&str> =
            text.split(' ').filter(|word| word.len() > 3 && word.starts_with('/')).collect();
        // The distribution's path of the standard library.
        let paths: Vec<&str> =
            paths.into_iter().filter(|path| !path.starts_with("/usr/src/rustc-")).collect();
        assert_eq!(paths, Vec::<&str>::new());
    }
}
