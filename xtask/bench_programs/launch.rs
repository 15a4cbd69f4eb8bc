//! Times three ways to run a program that does nothing, in turns: bare, in bubblewrap, and in the sandbox that
//! agentsh makes for a server. Prints microseconds as JSON.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use agentsh::session::Context;
use agentsh::session::launch::{self, Handles};
use agentsh::session::specify;
use agentsh_policy::ProcessPolicy;
use agentsh_sandbox::SpawnError;
use agentsh_sandbox::plan::Access;
use agentsh_sandbox::sealed::{self, Sealed};
use agentsh_sandbox::spec::{PathRules, PinnedBytes, PinnedFile, Process, ProcessKind, merge};
use serde_json::json;

/// Arguments: rounds, a static program, the project that it is in (also the current directory).
pub fn main(words: &[String]) {
    let [rounds, program, project] = words else { panic!("ROUNDS PROGRAM PROJECT") };
    let (program, project) = (Path::new(program), Path::new(project));
    let context = Context::find().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..rounds.parse().unwrap() {
        let started = Instant::now();
        assert!(quiet(&mut Command::new(program)));
        times[0].push(microseconds(started));
        let started = Instant::now();
        assert!(quiet(&mut bubblewrap(program, project)));
        times[1].push(microseconds(started));
        let file = File::open(program).unwrap();
        let sealed = sealed::seal(file.as_fd(), file.metadata().unwrap().len()).unwrap();
        let started = Instant::now();
        runtime.block_on(tokio::task::LocalSet::new().run_until(sandboxed(&context, program, sealed, round)));
        times[2].push(microseconds(started));
    }
    println!("{}", json!({"bare": times[0], "bwrap": times[1], "agentsh": times[2]}));
}

fn microseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

fn quiet(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).status().unwrap().success()
}

/// Mounts as in the sandbox of a server: the system and the project to read, the rest private.
fn bubblewrap(program: &Path, project: &Path) -> Command {
    let mut command = Command::new("bwrap");
    command.args(["--unshare-all", "--die-with-parent", "--new-session", "--proc", "/proc", "--dev", "/dev"]);
    for directory in ["/usr", "/etc", "/opt"] {
        command.args(["--ro-bind-try", directory, directory]);
    }
    for link in ["bin", "sbin", "lib", "lib64"] {
        command.args(["--symlink", &format!("usr/{link}"), &format!("/{link}")]);
    }
    let home = PathBuf::from(std::env::var_os("HOME").unwrap());
    command.args(["--tmpfs", "/tmp", "--tmpfs"]).arg(home);
    command.arg("--ro-bind").args([project, project]).arg("--chdir").arg(project).arg(program);
    command
}

/// Everything that a server's launch does after its files were hashed, to the end of the program.
async fn sandboxed(context: &Context, program: &Path, sealed: Sealed, round: u32) {
    let null = File::options().read(true).write(true).open("/dev/null").unwrap();
    let policy = ProcessPolicy::server_default();
    let limits = policy.limits.resolve_for_server();
    let process = Process {
        program: program.to_owned(),
        argv: vec!["true".into()],
        workdir: context.project.clone(),
        pinned: vec![PinnedFile {
            path: program.to_owned(),
            bytes: PinnedBytes::Copied { from: 0 },
            executable: true,
        }],
        ..specify::bare_process(context, ProcessKind::Server, "bench", limits)
    };
    let paths = PathRules {
        project_access: Some(Access::ReadOnly),
        shared_sockets: true,
        ..specify::path_rules(context, ProcessKind::Server, &limits)
    };
    let inherited = BTreeMap::new();
    let rules = specify::rules(&policy, "bench", &inherited);
    let spec = merge(process, paths, &rules, vec![specify::of_sandbox(context, ProcessKind::Server)]);
    let handles = Handles {
        descriptors: vec![sealed.memory],
        lender: None,
        egress: None,
        stdio: [null.as_fd(); 3],
        reports_to: None,
        asks: None,
    };
    let name = format!("agentsh-{}-{round}", std::process::id());
    let (running, ()) =
        launch::assemble(context, &spec, handles, &name, |_| Ok::<_, SpawnError>(())).await.unwrap();
    assert_eq!(running.child.exit().await, 0, "{:?}", running.child.execution_error());
}
