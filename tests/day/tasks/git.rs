//! Git, from the first status to a linked working tree.

use super::{Task, refused, works};

const GIT: &[&str] = &["git"];

pub const TASKS: &[Task] = &[
    works("git status is clean, no stubs listed", GIT, "test -z \"$(git status --porcelain)\""),
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
    works("git branch -m", GIT, "git branch old; git branch -m old new")
        .before("git branch --track tracked origin/feature"),
    works("git branch -m, where the policy lifts the guard", GIT, "git branch old; git branch -m old new")
        .before("git branch --track tracked origin/feature")
        .with(&["--policy", "../../../unmasked.yaml"]),
    works("git config user.name x", GIT, "git config user.name x").after("git config user.name | grep -qx x"),
    refused("git config core.hooksPath x", GIT, "git config core.hooksPath x", "agentsh policy allow --write .git/config"),
    works("git remote add", GIT, "git remote add up ../x").after("git config remote.up.url | grep -qx ../x"),
    works("git fetch origin (a repository next to the project, agreed)", GIT, "git fetch -q origin").with(&["--agree"]),
    works(
        "git push origin main (a repository next to the project, agreed)",
        GIT,
        "echo x >> file; git commit -qam x; git push -q origin main",
    )
    .with(&["--agree"])
    .after("git -C ../remote.git log -1 --format=%s main | grep -qx x"),
    refused("git push origin main (a repository next to the project)", GIT, "git push -q origin main", "--agree"),
    works(
        "git push inner main (a bare repository in the project)",
        GIT,
        "echo x >> file; git commit -qam x; git push -q inner main",
    )
    .after("git -C inner.git log -1 --format=%s main | grep -qx x"),
    works("git push -u inner new", GIT, "git checkout -qb new; git push -u inner new")
        .after("git -C inner.git rev-parse -q --verify new; git config branch.new.remote | grep -qx inner"),
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
    works(
        "git clean -fdx (stubs stay until the end)",
        GIT,
        "mkdir -p node_modules/x; echo x > prog; git clean -fdx -e inner.git; test ! -e prog; test ! -e node_modules",
    )
    .before("mkdir -p ~/.claude")
    .after("rm -r ~/.claude; test ! -e .claude"),
    works("git config user.signingkey x", GIT, "git config user.signingkey x; test \"$(git config user.signingkey)\" = x"),
    works("git clean -fdX of what is built", GIT, "echo x > prog; git clean -fdX src node_modules prog; test ! -e prog"),
    works("git add -A (stubs not added)", GIT, "echo x > n; git add -A; test \"$(git status --porcelain)\" = 'A  n'"),
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
    works(
        "git rebase -i with an editor",
        GIT,
        "for i in 1 2; do echo $i > n$i; git add n$i; git commit -qm $i; done; \
         printf '#!/bin/sh\\nsed -i 1s/pick/reword/ \"$1\"; sed -i s/^1$/one/ \"$1\"\\n' > /tmp/editor; chmod +x /tmp/editor; \
         GIT_EDITOR=/tmp/editor git rebase -i HEAD~2; git log --format=%s | grep -qx one",
    ),
    works(
        "git commit --fixup and rebase --autosquash",
        GIT,
        "echo x > n; git add n; git commit -qm n; echo y > n; git commit -qa --fixup HEAD; \
         GIT_SEQUENCE_EDITOR=true git rebase -q -i --autosquash HEAD~2; test \"$(git rev-list --count HEAD)\" = 2",
    ),
    works(
        "git cherry-pick that is given up",
        GIT,
        "git checkout -qb b; echo b > file; git commit -qam b; git checkout -q main; echo m > file; git commit -qam m; \
         ! git cherry-pick b; git cherry-pick --abort; test -z \"$(git status --porcelain)\"",
    ),
    works("git merge --squash", GIT, "git merge -q --squash origin/feature; git commit -qm squashed; test -f feature.txt"),
    works("git rebase --onto", GIT, "git checkout -q -b b origin/feature; git rebase -q --onto main HEAD~1; test -f feature.txt"),
    works("git switch -c, restore, restore --staged", GIT,
        "git switch -qc n; echo x >> file; git add file; git restore --staged file; git restore file; test -z \"$(git status --porcelain)\""),
    works("git stash branch", GIT, "echo x >> file; git stash -q; git stash branch other; grep -q x file"),
    works("git bundle, clone of a bundle", GIT, "git bundle create -q /tmp/b main; git clone -q -b main /tmp/b c; test -f c/file"),
    works("git range-diff, shortlog, log -S", GIT,
        "git range-diff main main main; git shortlog -s HEAD </dev/null; git log -S two --oneline | grep -q first"),
    works("git tag -a, push of a tag, tag -d, fetch --tags", GIT, "git tag -a -m a v1; git push -q inner v1; git tag -d v1; git fetch -q inner --tags; git rev-parse v1"),
    works("git push --force-with-lease", GIT, "git fetch -q inner; git commit -q --amend -m other; git push -q --force-with-lease inner main")
        .after("git -C inner.git log -1 --format=%s main | grep -qx other"),
    works("git push --delete", GIT, "git push -q inner main:gone; git push -q --delete inner gone; ! git ls-remote inner | grep gone"),
    works("git pull --rebase", GIT, "echo x > mine; git add mine; git commit -qm mine; git pull -q --rebase inner main; grep -q pulled file; test -f mine")
        .before("echo pulled >> file; git commit -qam p; git push -q inner main; git reset -q --hard HEAD~1"),
    works("git sparse-checkout (set up outside)", GIT, "git sparse-checkout set src; test ! -e tests; git sparse-checkout set src tests; test -d tests")
        .before("git status; git sparse-checkout init --cone")
        .after("git sparse-checkout disable; test -d dep"),
    works("git worktree list, lock, move, prune", GIT,
        "git worktree add -q wt -b wt; git worktree list | grep -q wt; git worktree lock wt; git worktree unlock wt; git worktree move wt wt2; \
         rm -rf wt2; git worktree prune; ! git worktree list | grep -q wt2"),
    works("git rerere", GIT,
        "git checkout -qb b; echo b > file; git commit -qam b; git checkout -q main; echo m > file; git commit -qam m; \
         git -c rerere.enabled=true merge b || true; echo both > file; git -c rerere.enabled=true commit -qam both; test -n \"$(ls .git/rr-cache)\""),
    works("git maintenance, repack, commit-graph", GIT, "git maintenance run --task=gc; git repack -adq; git commit-graph write"),
    works("git diff --no-index, diff --stat, word-diff", GIT, "echo x >> file; git diff --stat; git diff --word-diff | grep -q '{+x+}'; ! git diff --no-index file Makefile"),
    works("git grep, blame -L, log -L", GIT, "git grep -n two; git blame -L 1,2 file; git log -L 1,2:file --oneline"),
    works("git hash-object, cat-file, update-ref", GIT, "h=$(git hash-object -w file); git cat-file -p $h; git update-ref refs/own/x HEAD"),
    works("git filter-branch", GIT, "FILTER_BRANCH_SQUELCH_WARNING=1 git filter-branch -f --msg-filter 'sed s/first/begin/' HEAD; git log --format=%s | grep -qx begin"),
    works("git submodule foreach, status, sync of nothing", GIT, "git submodule foreach git status; git submodule status; git submodule summary")
        .before("git -c protocol.file.allow=always submodule add -q -b main \"$PWD/inner.git\" sub; git commit -qm s"),
    works("git submodule update --remote", GIT, "git -c protocol.file.allow=always submodule update --remote sub")
        .before("git -c protocol.file.allow=always submodule add -q -b main \"$PWD/inner.git\" sub; git commit -qm s"),
    works("git lfs track, add, checkout", &["git", "git-lfs"], "git lfs track '*.bin'; head -c 100000 /dev/zero > a.bin; git add .; git commit -qm lfs; git lfs ls-files | grep -q a.bin")
        .before("git lfs install --local"),
    works("husky: hooks of core.hooksPath run inside", GIT, "echo x >> file; git commit -qam x; test -f husky-ran")
        .before("mkdir .husky; printf '#!/bin/sh\\ntouch husky-ran\\n' > .husky/pre-commit; chmod +x .husky/pre-commit; git config core.hooksPath .husky; git add .husky; git commit -qm husky"),
    works("pre-commit run", &["git", "pre-commit"], "git add -A; pre-commit run --all-files")
        .before("printf 'repos:\\n- repo: local\\n  hooks:\\n  - {id: t, name: t, entry: \"true\", language: system}\\n' > .pre-commit-config.yaml"),
    works("git commit with a long message from a file, and trailers", GIT,
        "printf 'subject\\n\\nbody\\n' > /tmp/m; echo x >> file; git add file; git commit -qF /tmp/m --trailer 'Reviewed-by: A <a@b.example>'; git log -1 --format=%B | grep -q Reviewed-by"),
    works("git checkout of a file of another commit", GIT, "git checkout -q origin/feature -- feature.txt CLAUDE.md; git status --porcelain | grep -q feature.txt"),
    works("commits and branches in a repository of reftables", GIT,
        "cd r; for n in 1 2 3; do echo $n > f; git add f; git commit -qm $n; done; git switch -qc b; git branch -m c; git worktree add -q w; git worktree remove w")
        .before("git init -q --ref-format=reftable r 2>/dev/null || git init -q r")
        .after("test $(git -C r log --oneline c | wc -l) = 3"),
    works("git clone --recursive", GIT, "git -c protocol.file.allow=always clone -q --recursive . c; test -f c/sub/file")
        .before("git -c protocol.file.allow=always submodule add -q -b main \"$PWD/inner.git\" sub; git commit -qm s"),
    works("git fast-export, fast-import", GIT, "git init -q x; git fast-export --all | git -C x fast-import --quiet; git -C x rev-parse -q --verify main"),
    works("git daemon on localhost", GIT,
        "git clone -q --bare . d.git; touch d.git/git-daemon-export-ok; git daemon --listen=127.0.0.1 --port=19418 --base-path=\"$PWD\" --detach --pid-file=\"$PWD/pid\"; \
         sleep 1; git clone -q git://127.0.0.1:19418/d.git c; kill $(cat pid); test -f c/file"),
];
