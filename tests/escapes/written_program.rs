//! Run a file that was written during the session, where the policy lists the programs that may run. Stopped by: no
//! directory is both writable and executable, mounts are noexec, and memory files cannot be executed.

use crate::support::{everywhere, no, yes};

const LISTED: &str =
    "exec: {allow: [\"/usr/**\", \"/bin/**\", \"/lib/**\", \"/lib64/**\"]}, filesystem: {write: [\".\"]}";

/// `MFD_NOEXEC_SEAL`, `MFD_EXEC`.
const NEVER: u32 = 8;
const EXECUTABLE: u32 = 16;

#[test]
fn written_program_does_not_run() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        place.script("script.sh", "#!/bin/sh\nexit 0\n");
        let home = place.home.display().to_string();
        let project = place.project.display().to_string();
        sandbox.policy(LISTED);
        let mut expected = Vec::new();
        for directory in ["/tmp", "/var/tmp", "/dev/shm", &project, &home] {
            expected.push(no(format!("run-copy {directory}/copy")));
            expected.push(no(format!("run-script {directory}/script")));
            expected.push(no(format!("run-by-loader {directory}/loaded")));
            expected.push(no(format!("map-code {directory}/mapped")));
        }
        expected.extend([
            no(format!("execute {project}/script.sh")),
            no("run-memory 0"),
            no(format!("run-memory {EXECUTABLE}")),
            no(format!("run-memory {NEVER}")),
            yes(format!("memory-file-flags {NEVER}")),
            yes("execute /usr/bin/true"),
            yes("execute /bin/sh -c true"),
        ]);
        sandbox.holds(&expected);
    });
}

/// The twin: without a list everything that can be read may run.
#[test]
fn programs_all_run_without_an_exec_list() {
    everywhere(|sandbox| {
        let project = sandbox.place.project.display();
        sandbox.policy("filesystem: {write: [\".\"]}");
        sandbox.holds(&[
            yes("run-copy /tmp/copy"),
            yes("run-script /tmp/script"),
            yes("run-by-loader /tmp/loaded"),
            yes("map-code /dev/shm/mapped"),
            yes("run-memory 0"),
            yes(format!("run-copy {project}/copy")),
            yes(format!("run-script {project}/script")),
        ]);
    });
}

/// A listed directory in the project is the user's word, and nothing next to it is.
#[test]
fn programs_in_a_listed_project_directory_run() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        place.make_directory(&place.project.join("target"));
        let project = place.project.display();
        let list = format!("exec: {{allow: [\"/usr/**\", \"/bin/**\", \"{project}/target/**\"]}}");
        sandbox.policy(&format!("{list}, filesystem: {{write: [\".\"]}}"));
        sandbox.holds(&[
            yes(format!("run-copy {project}/target/copy")),
            yes(format!("run-by-loader {project}/target/loaded")),
            no(format!("run-copy {project}/copy")),
            no(format!("run-by-loader {project}/loaded")),
            no("run-copy /tmp/copy"),
        ]);
    });
}
