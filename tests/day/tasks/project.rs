//! Files of the project: ordinary ones, and those that instruct an agent or start a program.

use super::{Task, refused, works};

pub const TASKS: &[Task] = &[
    works("edit .github/workflows", &[], "echo 'on: pull_request' > .github/workflows/ci.yml"),
    refused(
        "edit .vscode/settings.json",
        &[],
        "echo {} > .vscode/settings.json || /run/agentsh/agentsh why .vscode/settings.json",
        "agentsh policy allow --write",
    ),
    refused(
        "new .vscode/launch.json",
        &[],
        "echo {} > .vscode/launch.json || /run/agentsh/agentsh why .vscode/launch.json",
        "agentsh policy allow --write",
    ),
    refused(
        "new git hook",
        &["git"],
        "echo x > .git/hooks/pre-push || /run/agentsh/agentsh why .git/hooks/pre-push",
        "agentsh policy allow --write",
    ),
    refused(
        "new .envrc",
        &[],
        "echo x > .envrc; for i in $(seq 100); do [ -s .envrc ] || break; sleep 0.05; done; [ ! -s .envrc ] && \
         /run/agentsh/agentsh why .envrc",
        "agentsh policy allow --write",
    ),
    works("edit CLAUDE.md", &[], "echo more >> CLAUDE.md").after("grep -qx more CLAUDE.md"),
    works("new AGENTS.md", &[], "echo new > AGENTS.md").after("grep -qx new AGENTS.md"),
    works("edit .npmrc", &[], "echo audit=false >> .npmrc").after("grep -qx audit=false .npmrc"),
    works("edit .cargo/config.toml", &[], "echo '[net]' >> .cargo/config.toml"),
    works("new .pre-commit-config.yaml", &[], "echo 'repos: []' > .pre-commit-config.yaml"),
    works("new .env", &[], "echo A=b > .env; cat .env"),
    works("new .gitignore and .editorconfig", &[], "echo x >> .gitignore; echo root=true > .editorconfig"),
    refused("chmod g+s, a directory of 2775", &[], "mkdir gs; chmod 2775 gs", "no policy allows it"),
    works("tar with a set-user-id file", &["tar"], "touch s; chmod 755 s; tar cf t.tar s; tar xf t.tar"),
    works(
        "zip and unzip",
        &["zip", "unzip"],
        "zip -q z.zip file; mkdir z; cd z; unzip -q ../z.zip; test -f file",
    ),
    works("rm -rf of directories", &[], "mkdir -p node_modules/a; rm -rf node_modules dep; test ! -e dep"),
    works("mv src src2 and back", &[], "mv src src2; mv src2 src"),
    works("links, symbolic and hard", &[], "ln -s file l; ln file h; cat l h; rm l h"),
    works("mkfifo, flock", &["flock"], "mkfifo f; flock file true; (echo x > f &) ; cat f"),
    works("a sparse file of 4 GiB", &["truncate"], "truncate -s 4G big; rm big"),
    works("cp -a, touch -d, chmod -R", &[], "cp -a src copy; touch -d yesterday copy; chmod -R go-w copy"),
    works(
        "find, grep -r, xargs, sed -i",
        &[],
        "find . -name '*.c' | xargs grep -l main; sed -i s/one/1/ file; grep -rq 1 file",
    ),
    works(
        "node fs.watch sees changes",
        &["node"],
        "node -e \"
        const fs=require('fs');const w=fs.watch('.');w.on('change',()=>{w.close();process.exit(0)});
        setTimeout(()=>fs.writeFileSync('seen','x'),50);setTimeout(()=>process.exit(1),5000)\"",
    ),
    works("notes in the home are there for the session", &[], "echo x > ~/note; cat ~/note")
        .after("test ! -e ~/note"),
    works(
        "what is written next to the project is there for the session",
        &[],
        "echo x > ../beside; cat ../beside",
    )
    .after("test ! -e ../beside"),
    refused(
        "read ~/.ssh",
        &[],
        "cat ~/.ssh/id_ed25519 || /run/agentsh/agentsh why ~/.ssh/id_ed25519",
        "agentsh policy allow",
    ),
];
