//! Change what is mounted where: take a mask off, make the system writable, bring in another tree.
//! Stopped by: no capability, and the system call filter.

use crate::support::{everywhere, no_with, yes};

#[test]
fn mount_tree_cannot_be_changed() {
    everywhere(|sandbox| {
        let place = &sandbox.place;
        let project = place.project.display();
        sandbox.holds(&[
            yes("mkdir /tmp/here"),
            no_with("mount /tmp/here", "REFUSED EPERM"),
            no_with("bind-mount / /tmp/here", "REFUSED EPERM"),
            no_with("remount-writable /usr", "REFUSED EPERM"),
            no_with("remount-writable /", "REFUSED EPERM"),
            no_with(format!("unmount {project}"), "REFUSED EPERM"),
            no_with("unmount /proc", "REFUSED EPERM"),
            no_with("pivot-root /tmp", "REFUSED EPERM"),
            no_with("fsopen", "REFUSED EPERM"),
            no_with("open-tree /", "REFUSED EPERM"),
            no_with("chroot /tmp", "REFUSED EPERM"),
            yes("create /tmp/here/file"),
        ]);
        if place.mode.is_root() {
            assert_eq!(place.outside(&[&format!("mount {project}"), "fsopen"]), ["DONE", "DONE"]);
        }
    });
}
