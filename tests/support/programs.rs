//! Copies of the binary and its fixtures in a directory where every user may read and execute them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

pub struct Programs {
    directory: tempfile::TempDir,
}

static SHARED: Mutex<Weak<Programs>> = Mutex::new(Weak::new());

impl Programs {
    /// The copies that running tests share; removed with the last of them.
    pub fn shared() -> Arc<Self> {
        let mut shared = SHARED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(programs) = shared.upgrade() {
            return programs;
        }
        let programs = Arc::new(Self::copy());
        *shared = Arc::downgrade(&programs);
        programs
    }

    /// Copies, not links: a new link changes the inode's `ctime`, which pins look at.
    fn copy() -> Self {
        let directory = tempfile::Builder::new().prefix("agentsh-suite-bin-").tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let examples = examples();
        for (from, name) in [
            (PathBuf::from(env!("CARGO_BIN_EXE_agentsh")), "agentsh"),
            (Path::new(env!("CARGO_BIN_EXE_agentsh")).with_file_name("agentsh-server"), "agentsh-server"),
            (examples.join("probe"), "probe"),
            (examples.join("internet"), "internet"),
            (examples.join("fixture_server"), "fixture_server"),
            // The adapter goes by the name of the program.
            (examples.join("fixture_agent"), "claude"),
        ] {
            let to = directory.path().join(name);
            fs::copy(&from, &to).unwrap_or_else(|error| {
                panic!("{}: {error}; run `cargo build --workspace --examples --bins` first", from.display())
            });
            fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { directory }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// Next to the binary under test: `target/debug/agentsh` and `target/debug/examples`.
fn examples() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_agentsh")).parent().unwrap().join("examples")
}
