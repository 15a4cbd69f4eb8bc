//! A file that answers to several names, as on a drive of Windows: what is guarded or hidden under one is there under
//! others. Stopped by: such a directory is read-only, and it is hidden if something in it is to be hidden.

use std::path::Path;
use std::process::Command;

use crate::support::{Mode, Outcome, Place, is_root, skip};

const MAKE: &str = "/usr/sbin/mkntfs";
const MOUNT: &str = "/usr/bin/lowntfs-3g";

/// Mounts the image at the project for the time of a command line, with these options.
fn on_a_drive(place: &Place, options: &str, line: &str) -> Outcome {
    let id = if place.mode == Mode::User { 1000 } else { 0 };
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c"]);
    command.arg(format!(
        "{MOUNT} -o allow_other,uid={id},gid={id},{options} \"$IMAGE\" \"$PROJECT\" || exit 99; cd \"$PROJECT\"
        mkdir -p .git/hooks; echo once > .git/hooks/pre-commit; echo TOPSECRET > secret
        setpriv --reuid {id} --regid {id} --clear-groups sh -c '{line}'; code=$?; cd /; umount \"$PROJECT\"; exit $code"
    ));
    for (name, value) in place.command("sh").get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command.env("AGENTSH", place.program("agentsh")).env("PROJECT", &place.project);
    command.env("IMAGE", place.path("image")).current_dir("/");
    Outcome::of(&mut command)
}

#[test]
fn directory_that_ignores_case_is_read_only() {
    if !is_root()
        || !Path::new(MAKE).exists()
        || !Path::new(MOUNT).exists()
        || !Path::new("/dev/fuse").exists()
    {
        return skip("a drive is mounted by root with lowntfs-3g (package ntfs-3g)");
    }
    for mode in Mode::all() {
        let place = Place::new(mode);
        let image = place.path("image");
        std::fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
        let made = Outcome::of(Command::new(MAKE).args(["--force", "--quiet"]).arg(&image));
        assert_eq!(made.code, 0, "{made}");
        let run = "exec \"$AGENTSH\" run -- sh -c \"echo twice >> .GIT/HOOKS/pre-commit; echo new > new; cat Secret; true\"";

        let several = on_a_drive(&place, "ignore_case", run);
        if several.code == 99 {
            return skip("no drive can be mounted here");
        }
        assert!(several.stderr.contains("can be reached by several names"), "{mode:?} {several}");
        assert!(several.stderr.contains("it is read-only inside"), "{mode:?} {several}");
        let left = on_a_drive(&place, "ignore_case", "cat .git/hooks/pre-commit; ls");
        assert!(left.stdout.contains("once") && !left.stdout.contains("twice"), "{mode:?} {left}");
        assert!(!left.stdout.contains("new"), "{mode:?} {left}");
        // It may be read, under any name, until something in it is to be hidden.
        assert!(several.stdout.contains("TOPSECRET"), "{mode:?} {several}");
        place.user_policy("version: 1\nagent:\n  filesystem: {deny: [secret]}\n");
        let hidden = on_a_drive(&place, "ignore_case", run);
        assert!(hidden.stderr.contains("it is empty inside"), "{mode:?} {hidden}");
        assert!(!hidden.stdout.contains("TOPSECRET"), "{mode:?} {hidden}");
        let review = on_a_drive(&place, "ignore_case", "exec \"$AGENTSH\" run --review -- true");
        assert!(
            review.code != 0 && review.stderr.contains("can be reached by several names"),
            "{mode:?} {review}"
        );

        // The twin: the same drive, on which letters count.
        let one = on_a_drive(&place, "rw", run);
        assert!(!one.stderr.contains("several names"), "{mode:?} {one}");
        let left = on_a_drive(&place, "rw", "cat .git/hooks/pre-commit; ls");
        assert!(left.stdout.contains("new") && !left.stdout.contains("twice"), "{mode:?} {left}");
    }
}
