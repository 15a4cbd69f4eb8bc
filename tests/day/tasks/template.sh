# The project that every thing gets a copy of, with a bare repository beside it and one inside it.
git init -q --bare -b main remote.git
git init -q -b main proj
cd proj
printf 'one\ntwo\nthree\n' > file
mkdir -p src .vscode .cargo .github/workflows dep tests
echo 'int main(void) { return 0; }' > src/main.c
printf 'all: prog\nprog: src/main.c\n\tcc -o prog src/main.c\n' > Makefile
echo '# Notes' > CLAUDE.md
echo '{"editor.tabSize": 4}' > .vscode/settings.json
echo 'fund=false' > .npmrc
printf '[build]\njobs = 1\n' > .cargo/config.toml
echo 'on: push' > .github/workflows/ci.yml
printf 'node_modules\nprog\n.venv\n__pycache__\n' > .gitignore
echo '{"name": "dep", "version": "1.0.0", "main": "index.js", "bin": {"dep": "cli.js"}}' > dep/package.json
echo 'module.exports = () => 42;' > dep/index.js
printf '#!/usr/bin/env node\nconsole.log("dep");\n' > dep/cli.js
chmod +x dep/cli.js
echo '{"name": "proj", "version": "1.0.0", "scripts": {"test": "node --test tests/", "build": "echo built > out.txt"}, "dependencies": {"dep": "file:dep"}}' > package.json
printf 'const test = require("node:test");\ntest("sum", () => { if (1 + 1 !== 2) throw 1; });\n' > tests/sum.test.js
printf 'import unittest\nclass T(unittest.TestCase):\n    def test_it(self): self.assertEqual(1 + 1, 2)\n' > tests/test_it.py
git add -A
git commit -qm first
git checkout -qb feature
echo 'more notes' >> CLAUDE.md
echo 'feature' > feature.txt
git add -A
git commit -qm feature
git checkout -q main
git remote add origin ../remote.git
git push -q origin main feature
git branch -qD feature
git init -q --bare -b main inner.git
echo inner.git >> .git/info/exclude
git remote add inner ./inner.git
git push -q inner main
