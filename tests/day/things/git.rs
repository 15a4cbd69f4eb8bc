//! Git, from the first status to a linked working tree.

use super::{Thing, refused, works};

const GIT: &[&str] = &["git"];
// Where something is refused, the scripts sleep first: the names of guarded files are watched some milliseconds after the start.

pub const THINGS: &[Thing] = &[
    works("git status is clean, no stand-ins listed", GIT, "test -z \"$(git status --porcelain)\""),
    works(
        "git commit with the name of ~/.gitconfig",
        GIT,
        "echo x >> file; git commit -qam x; git log -1 --format=%an | grep -qx 'Ada Example'",
    )
    .after("git log -1 --format=%s | grep -qx x"),
    works(
        "git commit, name given by -c",
        GIT,
        "echo x >> file; git -c user.name=B -c user.email=b@b.example commit -qam x",
    ),
    works("git checkout -b new", GIT, "git checkout -qb new; echo x >> file; git commit -qam x"),
    works("git checkout --track origin/feature", GIT, "git checkout --track origin/feature; test -f feature.txt"),
    works("git switch feature (a remote branch)", GIT, "git switch feature; test -f feature.txt"),
    works("git checkout main", GIT, "git checkout -qb new; git checkout -q main"),
    works("git branch -d", GIT, "git branch gone; git branch -d gone; ! git rev-parse -q --verify gone"),
    works(
        "git branch -D of a branch that is configured",
        GIT,
        "git branch -D tracked; ! git rev-parse -q --verify tracked",
    )
    .before("git branch --track tracked origin/feature"),
    refused("git branch -m (it is renamed, and git says that it cannot write its configuration)", GIT,
        "sleep 0.5; git branch old; git branch -m old new || { git rev-parse -q --verify new; exit 1; }", "unmask: [\".git/config\"]"),
    works("git branch -m, where the policy lifts the guard", GIT, "git branch old; git branch -m old new")
        .before("git branch --track tracked origin/feature")
        .with(&["--policy", "../../../unmasked.yaml"]),
    refused("git config user.name x", GIT, "sleep 0.5; git config user.name x", "unmask: [\".git/config\"]"),
    refused("git remote add", GIT, "sleep 0.5; git remote add up ../x", "unmask: [\".git/config\"]"),
    works("git fetch origin (a repository beside the project, agreed)", GIT, "git fetch -q origin").with(&["--agree"]),
    works(
        "git push origin main (a repository beside the project, agreed)",
        GIT,
        "echo x >> file; git commit -qam x; git push -q origin main",
    )
    .with(&["--agree"])
    .after("git -C ../remote.git log -1 --format=%s main | grep -qx x"),
    refused("git push origin main (a repository beside the project)", GIT, "git push -q origin main", "--agree"),
    works(
        "git push inner main (a bare repository in the project)",
        GIT,
        "echo x >> file; git commit -qam x; git push -q inner main",
    )
    .after("git -C inner.git log -1 --format=%s main | grep -qx x"),
    works("git push -u inner new", GIT, "git checkout -qb new; git push -u inner new")
        .after("git -C inner.git rev-parse -q --verify new"),
    works(
        "git pull from a bare repository in the project",
        GIT,
        "git pull -q inner main; grep -q pulled file",
    )
    .before("echo pulled >> file; git commit -qam p; git push -q inner main; git reset -q --hard HEAD~1"),
    works("git stash / pop", GIT, "echo x >> file; git stash -q; git stash pop -q; grep -q x file"),
    works(
        "git stash -u / pop",
        GIT,
        "echo x > untracked; git stash -u; test ! -e untracked; git stash pop; grep -q x untracked",
    ),
    works("git clean -fd", GIT, "mkdir d; echo x > d/x; git clean -fd; test ! -e d"),
    refused(
        "git clean -fdx (it clears everything else, and says that it cannot remove stand-ins)",
        GIT,
        "mkdir -p node_modules/x; echo x > prog; git clean -fdx || { test ! -e prog; exit 1; }",
        "failed to remove .claude/",
    ),
    works("git clean -fdX of what is built", GIT, "echo x > prog; git clean -fdX src node_modules prog; test ! -e prog"),
    works("git add -A (stand-ins not added)", GIT, "echo x > n; git add -A; test \"$(git status --porcelain)\" = 'A  n'"),
    works(
        "git reset --hard; git merge; git rebase",
        GIT,
        "git checkout -qb b; echo b > b; git add b; git commit -qm b; git checkout -q main; echo m > m; git add m; \
         git commit -qm m; git merge -q -m merged b; git reset -q --hard HEAD~1; git checkout -q b; git rebase -q main",
    ),
    works("git merge origin/feature", GIT, "git merge -q -m merged origin/feature; test -f feature.txt"),
    works("git worktree add", GIT, "git worktree add -q wt -b wt; cd wt; echo x >> file; git commit -qam x"),
    works("git worktree remove", GIT, "git worktree add -q wt -b wt; git worktree remove wt; test ! -e wt"),
    works(
        "work in a linked working tree (agreed)",
        GIT,
        "echo x >> file; git commit -qam x; test -z \"$(git status --porcelain)\"",
    )
    .before("git worktree add -q ../linked -b linked")
    .started_in("../linked")
    .with(&["--agree"])
    .after("git log -1 --format=%s linked | grep -qx x"),
    refused("work in a linked working tree", GIT, "git status", "--agree")
        .before("git worktree add -q ../linked -b linked")
        .started_in("../linked"),
    works(
        "git submodule add",
        GIT,
        "git -c protocol.file.allow=always submodule add \"$PWD/inner.git\" sub; git commit -qm sub",
    )
    .after("git -c protocol.file.allow=always submodule update --init; git -C sub status"),
    works("git submodule update (initialised outside)", GIT, "git -c protocol.file.allow=always submodule update sub; test -f sub/file")
        .before(
            "git -c protocol.file.allow=always submodule add -q \"$PWD/inner.git\" sub; git commit -qm s; git submodule deinit -q -f sub; git submodule init",
        ),
    works("commit in a submodule", GIT, "cd sub; echo x >> file; git commit -qam x; cd ..; git commit -qam sub")
        .before("git -c protocol.file.allow=always submodule add -q \"$PWD/inner.git\" sub; git commit -qm s"),
    works("git init in a new directory + commit", GIT, "mkdir n; cd n; git init -q; echo x > x; git add x; git commit -qm x"),
    works("git clone of the project", GIT, "git clone -q . c; cd c; git log -1"),
    works("git clone --depth 1", GIT, "git clone -q --depth 1 \"file://$PWD/inner.git\" c; test -f c/file"),
    works("git gc", GIT, "git gc -q"),
    works("git fsck", GIT, "git fsck"),
    works("git tag, log, blame", GIT, "git tag t; git tag -a -m a a; git log --oneline; git blame file"),
    works("checkout of a branch that changes CLAUDE.md", GIT, "git checkout -q feature; grep -q more CLAUDE.md"),
    works("git commit --amend", GIT, "echo x >> file; git commit -qa --amend --no-edit"),
    works("git cherry-pick", GIT, "git cherry-pick origin/feature; test -f feature.txt"),
    works("git revert", GIT, "echo x >> file; git commit -qam x; git revert --no-edit HEAD; ! grep -q x file"),
    works(
        "git rebase -i",
        GIT,
        "for i in 1 2; do echo $i > n$i; git add n$i; git commit -qm $i; done; \
         GIT_SEQUENCE_EDITOR='sed -i 2s/pick/fixup/' git rebase -q -i HEAD~2; test \"$(git rev-list --count HEAD)\" = 2",
    ),
    works(
        "git bisect run",
        GIT,
        "for i in 1 2 3 4; do echo $i > n; git add n; git commit -qm $i; done; \
         git bisect start HEAD HEAD~3; git bisect run sh -c 'test $(cat n) -lt 3' | grep -q 'first bad'; git bisect reset",
    ),
    works(
        "a conflict, resolved",
        GIT,
        "git checkout -qb b; echo b > file; git commit -qam b; git checkout -q main; echo m > file; git commit -qam m; \
         git merge b || true; echo both > file; git commit -qam both; test \"$(git log -1 --format=%s)\" = both",
    ),
    works("git mv and git rm", GIT, "git mv file moved; git rm -q Makefile; git commit -qm moved; test -f moved"),
    works(
        "git format-patch and git am",
        GIT,
        "git checkout -q -b p; echo x >> file; git commit -qam p; git format-patch -1 -o /tmp/p -q; git checkout -q main; git am -q /tmp/p/*.patch; grep -q x file",
    ),
    works("git apply", GIT, "echo x >> file; git diff > /tmp/d; git checkout -q file; git apply /tmp/d; grep -q x file"),
    works("git archive, grep, ls-files", GIT, "git archive HEAD | tar t; git grep -q two; git ls-files"),
    works("git notes, reflog, describe", GIT, "git notes add -m n; git reflog; git tag v1; git describe --tags"),
    works("git commit below the top", GIT, "echo x > new; git add new; git commit -qm new; git -C .. status --short")
        .started_in("src"),
    works("a hook of the project runs inside", GIT, "echo x >> file; git commit -qam x; test -f hook-ran")
        .before("printf '#!/bin/sh\\ntouch hook-ran\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit"),
];
