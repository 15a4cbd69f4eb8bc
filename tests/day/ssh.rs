//! Keys of the user that sign for the agent: git and ssh log in to the servers that the policy names, commits are signed, and
//! no key is inside.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::has;
use crate::support::{Mode, Outcome, Place, eventually, is_root};

/// An OpenSSH server on the loopback, in which the key `~/.ssh/id_ed25519` of the place logs in as root.
struct Sshd {
    child: Child,
    port: u16,
    log: PathBuf,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn generate(path: &Path, kind: &str) {
    let path = path.display().to_string();
    let made =
        Command::new("ssh-keygen").args(["-q", "-t", kind, "-N", "", "-C", "ada", "-f", &path]).status();
    assert!(made.unwrap().success());
}

impl Sshd {
    fn start(place: &Place, name: &str, kind: &str) -> Self {
        let directory = place.path(name);
        std::fs::create_dir(&directory).unwrap();
        generate(&directory.join("host"), kind);
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let here = directory.display();
        let keys = place.home.join(".ssh/id_ed25519.pub");
        let config = format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey {here}/host\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
             UsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n",
            keys.display()
        );
        std::fs::write(directory.join("config"), config).unwrap();
        std::fs::create_dir_all("/run/sshd").unwrap();
        let log = directory.join("log");
        let child = Command::new("/usr/sbin/sshd")
            .args([
                "-D",
                "-E",
                &log.display().to_string(),
                "-f",
                &directory.join("config").display().to_string(),
            ])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        assert!(eventually(|| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()));
        Self { child, port, log }
    }

    /// The user has seen its host key before.
    fn is_known(&self, place: &Place, name: &str) {
        let key = std::fs::read_to_string(place.path(name).join("host.pub")).unwrap();
        let path = place.home.join(".ssh/known_hosts");
        let known = std::fs::read_to_string(&path).unwrap_or_default();
        place.write(&path, format!("{known}[localhost]:{} {key}", self.port));
        // As a careful user keeps it.
        let hashed = Command::new("ssh-keygen").args(["-q", "-H", "-f"]).arg(&path).output();
        assert!(hashed.unwrap().status.success());
        place.own(&path);
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

fn can() -> bool {
    if !is_root() {
        crate::support::skip("an ssh server is started by root");
    }
    is_root() && has("ssh") && has("git") && has("ssh-agent") && {
        let there = Path::new("/usr/sbin/sshd").exists();
        if !there {
            crate::support::skip("sshd is not installed");
        }
        there
    }
}

fn place_with_key(mode: Mode, backend: &'static str) -> Place {
    let place = Place::new(mode).policed_by(backend);
    place.make_directory(&place.home.join(".ssh"));
    generate(&place.home.join(".ssh/id_ed25519"), "ed25519");
    place.own(&place.home.join(".ssh/id_ed25519"));
    place.own(&place.home.join(".ssh/id_ed25519.pub"));
    place.write(
        place.home.join(".gitconfig"),
        "[user]\nname = Ada\nemail = ada@b.example\n[gpg]\nformat = ssh\n[commit]\ngpgSign = true\n",
    );
    place
}

fn run(place: &Place, script: &str) -> Outcome {
    Outcome::of(&mut place.agentsh(&["run", "--", "sh", "-c", script]))
}

/// A key of which nothing is inside.
fn secret(place: &Place) -> String {
    let text = std::fs::read_to_string(place.home.join(".ssh/id_ed25519")).unwrap();
    text.lines().nth(2).unwrap().to_owned()
}

#[test]
#[ignore = "takes long"]
fn git_over_ssh_and_signed_commits_without_a_key_inside() {
    if !can() {
        return;
    }
    for mode in Mode::all() {
        for (backend, kind) in [("auto", "ed25519"), ("userns", "rsa"), ("userns", "ecdsa")] {
            let place = place_with_key(mode, backend);
            let server = Sshd::start(&place, "server", kind);
            server.is_known(&place, "server");
            let remote = place.path("remote.git");
            let made = Command::new("git").args(["init", "-q", "--bare", "-b", "main"]).arg(&remote).status();
            assert!(made.unwrap().success());
            let port = server.port;
            place.user_policy(&format!(
                "agent:\n  ssh: {{keys: [~/.ssh/id_ed25519], hosts: [\"localhost:{port}\"], sign: [git]}}\n"
            ));
            let secret = secret(&place);
            let (first, second) = secret.split_at(20);
            let script = format!(
                "set -e; git clone -q ssh://root@localhost:{port}{} copy 2>/dev/null; cd copy; echo one > file; \
                 git checkout -q -b main 2>/dev/null || true; git add file; git commit -qm one; \
                 git push -q origin main; git cat-file commit HEAD | grep -c 'BEGIN SSH SIGNATURE'; \
                 ssh-add -l | cut -d' ' -f3; ssh-add -D 2>&1 | head -1; grep -rl {first}''{second} ~ /tmp /run 2>/dev/null || true; \
                 ls ~/.ssh",
                remote.display()
            );
            let outcome = run(&place, &script).expect_code(0);
            let lines: Vec<&str> = outcome.stdout.lines().collect();
            let [signatures, comment, _cannot_remove, config, known] = lines.as_slice() else {
                panic!("{outcome} {}", server.log())
            };
            assert_eq!((*signatures, *comment), ("1", "ada"), "{outcome}");
            assert_eq!((*config, *known), ("config", "known_hosts"), "{outcome}");
            let head = Command::new("git")
                .arg("-C")
                .arg(&remote)
                .args(["log", "-1", "--format=%s", "main"])
                .output();
            assert_eq!(head.unwrap().stdout, b"one\n");
            // Outside it is the user's signature.
            let allowed = place.path("allowed");
            let public = std::fs::read_to_string(place.home.join(".ssh/id_ed25519.pub")).unwrap();
            std::fs::write(&allowed, format!("ada@b.example {public}")).unwrap();
            let verified = Command::new("git")
                .args(["-c", &format!("gpg.ssh.allowedSignersFile={}", allowed.display())])
                .arg("-C")
                .arg(&remote)
                .args(["verify-commit", "main"])
                .output()
                .unwrap();
            assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
            let uses = place.events("ssh_key_used");
            let is = |purpose: &str, destination: &str, user: &str| {
                uses.iter().any(|used| {
                    used["purpose"] == purpose
                        && used["destination"] == destination
                        && used["user"] == user
                        && used["key"].as_str().is_some_and(|key| key.starts_with("SHA256:"))
                        && used["rule"]["line"] == 2
                })
            };
            assert!(
                is("login", &format!("localhost:{port}"), "root") && is("signature", "git", ""),
                "{uses:?}"
            );
        }
    }
}

#[test]
#[ignore = "takes long"]
fn ssh_key_signs_for_no_other_server_and_no_other_purpose() {
    if !can() {
        return;
    }
    for mode in Mode::all() {
        for backend in ["auto", "userns"] {
            let place = place_with_key(mode, backend);
            let (server, other) =
                (Sshd::start(&place, "server", "ed25519"), Sshd::start(&place, "other", "ed25519"));
            server.is_known(&place, "server");
            other.is_known(&place, "other");
            let (port, elsewhere) = (server.port, other.port);
            place.user_policy(&format!(
                "agent:\n  network: {{loopback: [{elsewhere}]}}\n  \
                 ssh: {{keys: [~/.ssh/id_ed25519], hosts: [\"localhost:{port}\"]}}\n"
            ));
            let log_in = |port: u16| {
                format!(
                    "ssh -o StrictHostKeyChecking=no -o BatchMode=yes -p {port} root@localhost echo in 2>&1 | tail -1"
                )
            };
            let script = format!(
                "{}; {}; echo text > t; ssh-keygen -q -Y sign -n file -f ~/k.pub t 2>/dev/null || echo unsigned",
                log_in(port),
                log_in(elsewhere)
            );
            let public = std::fs::read_to_string(place.home.join(".ssh/id_ed25519.pub")).unwrap();
            let outcome =
                run(&place, &format!("echo '{}' > ~/k.pub; {script}", public.trim())).expect_code(0);
            let lines: Vec<&str> = outcome.stdout.lines().collect();
            let [here, there, signed] = lines.as_slice() else { panic!("{outcome}") };
            assert_eq!((*here, *signed), ("in", "unsigned"), "{outcome}");
            assert!(there.contains("Permission denied"), "{outcome}");
            assert!(!other.log().contains("Accepted publickey"), "{}", other.log());
            assert!(outcome.stderr.contains("the policy does not allow the server's host key"), "{outcome}");
            assert!(outcome.stderr.contains("to allow it: `sign: [file]`"), "{outcome}");
            let refused = place.events("ssh_key_refused");
            let reasons: Vec<_> = refused.iter().filter_map(|event| event["reason"].as_str()).collect();
            assert!(
                reasons.contains(&"host-not-allowed") && reasons.contains(&"namespace-not-allowed"),
                "{reasons:?}"
            );
        }
    }
}

/// Two entries name one key: each answers for its own servers and signatures.
#[test]
#[ignore = "takes long"]
fn each_entry_of_a_key_is_cited_for_what_it_allows() {
    if !can() {
        return;
    }
    for mode in Mode::all() {
        let place = place_with_key(mode, "auto");
        let (one, two) = (Sshd::start(&place, "one", "ed25519"), Sshd::start(&place, "two", "ed25519"));
        one.is_known(&place, "one");
        two.is_known(&place, "two");
        let policy = format!(
            "agent:\n  ssh:\n    - {{keys: [~/.ssh/id_ed25519], hosts: [\"localhost:{}\"]}}\n    \
             - {{keys: [~/.ssh/id_ed25519], hosts: [\"localhost:{}\"], sign: [git]}}\n",
            one.port, two.port
        );
        place.user_policy(&policy);
        let log_in = |port: u16| format!("ssh -o BatchMode=yes -p {port} root@localhost echo in");
        let sign = |namespace: &str| format!("ssh-keygen -q -Y sign -n {namespace} -f ~/k.pub t 2>/dev/null");
        let public = std::fs::read_to_string(place.home.join(".ssh/id_ed25519.pub")).unwrap();
        let script = format!(
            "echo '{}' > ~/k.pub; echo text > t; {}; {}; {} && echo signed; {} || echo unsigned",
            public.trim(),
            log_in(one.port),
            log_in(two.port),
            sign("git"),
            sign("file")
        );
        let outcome = run(&place, &script).expect_code(0);
        assert_eq!(outcome.stdout, "in\nin\nsigned\nunsigned\n", "{outcome}");
        let cited = |kind: &str, field: &str| -> Vec<(String, u64)> {
            let events = place.events(kind);
            let cited = events.iter().map(|event| {
                (event[field].as_str().unwrap().to_owned(), event["rule"]["line"].as_u64().unwrap())
            });
            cited.collect()
        };
        let uses = cited("ssh_key_used", "destination");
        for (destination, line) in [
            (format!("localhost:{}", one.port), 3),
            (format!("localhost:{}", two.port), 4),
            ("git".into(), 4),
        ] {
            assert!(uses.iter().any(|(used, _)| *used == destination), "{destination}: {uses:?}");
            assert!(uses.iter().all(|(used, cited)| *used != destination || *cited == line), "{uses:?}");
        }
        assert_eq!(cited("ssh_key_refused", "reason"), [("namespace-not-allowed".to_owned(), 4)]);
        let layers = place.events("enforcement");
        let agent = layers.iter().find(|layer| layer["layer"] == "ssh agent").unwrap();
        assert!(agent.to_string().contains("1 of 1 keys"), "{agent}");
    }
}

/// A key that is nowhere in a file that can be read without its passphrase: the user's own agent holds it.
#[test]
#[ignore = "takes long"]
fn key_of_the_users_ssh_agent_is_used() {
    if !can() {
        return;
    }
    for mode in Mode::all() {
        let place = place_with_key(mode, "auto");
        let server = Sshd::start(&place, "server", "ed25519");
        server.is_known(&place, "server");
        let port = server.port;
        let key = place.home.join(".ssh/id_ed25519");
        let ssh = format!("ssh -o BatchMode=yes -p {port} root@localhost echo in");
        place.user_policy(&format!(
            "agent:\n  ssh: {{keys: [~/.ssh/id_ed25519], hosts: [\"localhost:{port}\"]}}\n"
        ));
        let script = format!(
            "ssh-add -q {0} 2>/dev/null && ssh-keygen -q -p -N secret -f {0} >/dev/null && exec \"$@\"",
            key.display()
        );
        let mut with_agent = place.command("ssh-agent");
        with_agent.args(["sh", "-c", &script, "sh"]).arg(place.program("agentsh"));
        let outcome = Outcome::of(with_agent.args(["run", "--", "sh", "-c", &ssh])).expect_code(0);
        assert_eq!(outcome.stdout, "in\n", "{outcome}");
        // Without the agent it cannot be had, and the message says what to do.
        let outcome = run(&place, &ssh);
        assert_ne!(outcome.code, 0, "{outcome}");
        assert!(
            outcome.stderr.contains("it needs a passphrase, or cannot be read; run `ssh-add "),
            "{outcome}"
        );
        // A fingerprint finds it only there too.
        place.user_policy("agent:\n  ssh: {keys: [\"SHA256:none\"], sign: [git]}\n");
        let outcome = run(&place, "ssh-add -l");
        assert!(outcome.stderr.contains("your ssh agent does not have"), "{outcome}");
    }
}
