#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

use std::fs;

use super::{PolicyError, Search, load};

struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { directory: tempfile::tempdir().unwrap() };
        fs::create_dir_all(place.path("project")).unwrap();
        fs::create_dir_all(place.path("config/agentsh")).unwrap();
        place
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> &Self {
        fs::write(self.path(name), text).unwrap();
        self
    }

    fn search(&self, explicit: Option<&str>, agent: &str) -> Search {
        Search {
            explicit: explicit.map(str::to_owned),
            project: self.path("project"),
            config_home: self.path("config"),
            system: self.path("system.yaml"),
            state: self.path("state"),
            agent: agent.to_owned(),
            ..Search::default()
        }
    }

    fn source(&self, explicit: Option<&str>, agent: &str) -> String {
        let policy = load(&self.search(explicit, agent)).unwrap_or_else(|error| panic!("{}", error.render()));
        policy.source.replace(&self.directory.path().display().to_string(), "")
    }

    fn error(&self) -> PolicyError {
        load(&self.search(None, "x")).expect_err("the policy was accepted")
    }
}

const USER: &str = "version: 1\nagent: {network: {allow: [a.example.com]}}\n";

#[test]
fn policy_layers_are_merged_in_order() {
    let place = Place::new();
    assert_eq!(place.source(None, "claude"), "built-in:claude");
    assert_eq!(place.source(None, "codex"), "built-in:codex");
    assert_eq!(place.source(None, "anything"), "built-in:default");
    place.write("config/agentsh/policy.yaml", USER);
    assert_eq!(place.source(None, "claude"), "built-in:claude + /config/agentsh/policy.yaml");
    place.write("system.yaml", "version: 1\n");
    assert_eq!(place.source(None, "claude"), "built-in:claude + /system.yaml + /config/agentsh/policy.yaml");
    place.write("project/.agentsh.yaml", "version: 1\n");
    let narrowed =
        "built-in:claude + /system.yaml + /config/agentsh/policy.yaml, narrowed by /project/.agentsh.yaml";
    assert_eq!(place.source(None, "claude"), narrowed);
    assert_eq!(
        place.source(Some("strict"), "claude"),
        "built-in:strict, narrowed by /project/.agentsh.yaml",
        "what is named is the only one"
    );
    // A file that the user names counts as the user's policy, wherever it is.
    let file = place.path("project/.agentsh.yaml").display().to_string();
    assert!(place.source(Some(&file), "claude").ends_with("policy.yaml + /project/.agentsh.yaml"));
    place.write("config/agentsh/policy.yaml", "extends: strict\n");
    assert!(
        place.source(None, "claude").starts_with("built-in:strict + /config/agentsh/policy.yaml, narrowed")
    );
    place.write("config/agentsh/policy.yaml", "extends: none\n");
    assert!(place.source(None, "claude").starts_with("/config/agentsh/policy.yaml, narrowed"));
    place.write("project/.agentsh.yaml", "extends: none\n");
    assert!(place.error().render().contains("cannot choose what it starts from"));
}

#[test]
fn project_policy_cannot_widen_unless_the_user_names_it() {
    let place = Place::new();
    place.write("project/.agentsh.yaml", "version: 1\nagent: {network: {allow: [b.example.com]}}\n");
    assert!(place.error().render().contains("can only narrow"));
    let file = place.path("project/.agentsh.yaml").display().to_string();
    let policy = load(&place.search(Some(&file), "x")).unwrap();
    assert!(
        policy.agent.network.allow.iter().any(|rule| rule.value.to_string().starts_with("b.example.com"))
    );
}

#[test]
fn a_policy_that_contradicts_its_tests_is_not_loaded() {
    let place = Place::new();
    place.write(
        "config/agentsh/policy.yaml",
        "version: 1\ntests:\n  - {connect: \"example.com:443\", expect: deny}\n  - {read: ~/.ssh/id, expect: allow}\n",
    );
    let shown = place.error().render().replace(&place.directory.path().display().to_string(), "");
    insta::assert_snapshot!(shown, @r#"
    error: this test expects `allow`, but read ~/.ssh/id is denied: `~/.ssh` is never visible: SSH keys
     --> /config/agentsh/policy.yaml:4:3
      |
    4 |   - {read: ~/.ssh/id, expect: allow}
      |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
      = help: decided by built-in (mask:~/.ssh)
    "#);
}

#[test]
fn project_tests_judge_the_merged_policy() {
    let place = Place::new();
    place.write("config/agentsh/policy.yaml", USER);
    place.write(
        "project/.agentsh.yaml",
        "agent: {network: {allow: []}}\ntests: [{connect: \"a.example.com:443\", expect: deny}]\n",
    );
    assert!(load(&place.search(None, "x")).is_ok());
    place.write("project/.agentsh.yaml", "tests: [{connect: \"a.example.com:443\", expect: deny}]\n");
    assert!(place.error().render().contains("expects `deny`"));
}

#[test]
fn policy_file_that_is_a_link_fifo_or_not_text_is_an_error() {
    let place = Place::new();
    let project = place.path("project/.agentsh.yaml");
    std::os::unix::fs::symlink("/etc/passwd", &project).unwrap();
    assert!(place.error().to_string().contains("symbolic link"), "{}", place.error());
    fs::remove_file(&project).unwrap();
    fs::create_dir(&project).unwrap();
    assert!(place.error().to_string().contains("plain file"), "{}", place.error());
    fs::remove_dir(&project).unwrap();
    nix::unistd::mkfifo(&project, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(place.error().to_string().contains("plain file"), "{}", place.error());
    fs::remove_file(&project).unwrap();
    place.write("project/.agentsh.yaml", b"version: 1\n# \xff\n");
    assert!(place.error().to_string().contains("line 2 is not UTF-8"), "{}", place.error());
    place.write("project/.agentsh.yaml", vec![b'#'; (1 << 20) + 1]);
    assert!(place.error().to_string().contains("larger than 1 MiB"), "{}", place.error());
}

#[test]
fn unknown_policy_name_is_explained() {
    let place = Place::new();
    for (name, expected) in [
        ("stritc", "there is no policy `stritc`: did you mean `strict`?"),
        (
            "nonsense-at-all",
            "give a file, or one of `default`, `claude`, `codex`, `strict`, `observe` or `gateway`",
        ),
        ("./none.yaml", "there is no such file"),
    ] {
        let error = load(&place.search(Some(name), "x")).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
