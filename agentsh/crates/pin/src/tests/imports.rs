use std::collections::BTreeSet;

use super::{Machine, Resolved, text};

const PYTHON: [&str; 2] = [".venv/bin/python", "server.py"];

fn python_project() -> Machine {
    let machine = Machine::new();
    machine.venv("project/.venv", "installed", "1.0.0", "installed");
    machine.file(
        "project/server.py",
        "import tools.search as search, helper\nfrom tools import (read,  # a file\n    write)\n",
    );
    machine.file("project/helper.py", "from installed import main\n");
    machine.file("project/tools/__init__.py", "from . import common\n");
    machine.file("project/tools/common.py", "import json");
    machine.file("project/tools/search.py", "from .common import find\n");
    machine.file("project/tools/read.py", "");
    machine.file("project/tools/write/__init__.py", "from ..common import find\n");
    machine.file("project/tools/other.py", "");
    machine.file("project/tests/test_all.py", "import pytest\n");
    machine.file("project/app.py", "print()\n");
    machine
}

/// The files of a tree, without those that count by name.
fn hashed(resolved: &Resolved, name: &str) -> BTreeSet<String> {
    let tree = resolved.trees.iter().find(|tree| tree.name == name).unwrap();
    tree.manifest.iter().filter(|(_, entry)| *entry != "name").map(|(path, _)| text(path)).collect()
}

fn names(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn imports_of_a_python_script_in_the_project_are_pinned_and_other_code_is_not() {
    let machine = python_project();
    let before = machine.ok(&PYTHON);
    let expected = [
        "helper.py",
        "server.py",
        "tools/__init__.py",
        "tools/common.py",
        "tools/read.py",
        "tools/search.py",
        "tools/write/__init__.py",
    ];
    assert_eq!(hashed(&before, "script"), names(&expected));
    for edited in
        ["app.py", "tests/test_all.py", "tools/other.py", "tests/new/deep.py", "docs/conf.py", "data.json"]
    {
        machine.file(&format!("project/{edited}"), "edited");
        assert_eq!(machine.ok(&PYTHON).digest, before.digest, "{edited}");
        before.unchanged_since().unwrap();
    }
    for edited in expected {
        let whole = std::fs::read_to_string(machine.at(&format!("project/{edited}"))).unwrap();
        machine.file(&format!("project/{edited}"), &format!("{whole}#"));
        assert_ne!(machine.ok(&PYTHON).digest, before.digest, "{edited}");
        machine.file(&format!("project/{edited}"), &whole);
        assert_eq!(machine.ok(&PYTHON).digest, before.digest, "{edited}");
    }
}

#[test]
fn a_new_module_that_python_would_load_instead_changes_the_pin() {
    for new in [
        "json.py",
        "installed/__init__.py",
        "tools/search/__init__.py",
        "helper.so",
        "helper/__init__.py",
        "yaml.pyc",
    ] {
        let machine = python_project();
        let before = machine.ok(&PYTHON);
        machine.file(&format!("project/{new}"), "hostile");
        assert_ne!(machine.ok(&PYTHON).digest, before.digest, "{new}");
        assert!(before.unchanged_since().is_err(), "{new}");
    }
    let machine = python_project();
    let before = machine.ok(&PYTHON);
    machine.link("project/json.py", "data/json.txt");
    assert_ne!(machine.ok(&PYTHON).digest, before.digest);
}

#[test]
fn strings_that_name_python_code_count_and_computed_names_pin_all_of_it() {
    let of = |script: &str| {
        let machine = python_project();
        machine.file("project/web/__init__.py", "");
        machine.file("project/web/deep/views.py", "");
        machine.file("project/server.py", script);
        hashed(&machine.ok(&PYTHON), "script")
    };
    assert_eq!(of("run('app:main')\n"), names(&["server.py", "app.py"]));
    assert_eq!(
        of("call([sys.executable, \"tests/test_all.py\"])"),
        names(&["server.py", "tests/test_all.py"])
    );
    // Who is given a package by its name looks into it.
    assert_eq!(of("APPS = ['web']"), names(&["server.py", "web/__init__.py", "web/deep/views.py"]));
    assert_eq!(of("from importlib.metadata import version"), names(&["server.py"]));
    for computed in [
        "importlib.import_module(name)",
        "exec(text)",
        "import sys\nsys.path.insert(0, 'x')",
        "__import__(name)",
    ] {
        assert!(of(computed).contains("tools/other.py"), "{computed}");
    }
}

#[test]
fn imports_of_a_node_script_in_the_project_are_pinned_and_other_code_is_not() {
    let machine = Machine::new();
    machine.package("project/node_modules", "sdk", "1.0.0");
    machine.file("project/package.json", r#"{"name": "project", "type": "module"}"#);
    machine.file(
        "project/server.js",
        "import { a } from './lib/a.js'\nconst b = require('./lib/b')\nnew Worker('lib/worker.js')\n",
    );
    machine.file("project/lib/a.ts", "export * from '..'; import('./c/')\n");
    machine.file("project/lib/b.js", "import sdk from 'sdk'\n");
    machine.file("project/lib/c/index.mjs", "");
    machine.file("project/lib/worker.js", "");
    machine.file("project/lib/other.js", "");
    machine.file("project/index.js", "");
    machine.file("project/app.js", "");
    let line = ["node", "server.js"];
    let before = machine.ok(&line);
    let expected = [
        "index.js",
        "lib/a.ts",
        "lib/b.js",
        "lib/c/index.mjs",
        "lib/worker.js",
        "node_modules/.bin/sdk",
        "node_modules/sdk/cli.js",
        "node_modules/sdk/package.json",
        "package.json",
        "server.js",
    ];
    assert_eq!(hashed(&before, "package"), names(&expected));
    for edited in ["app.js", "lib/other.js", "new.js", "lib/new/x.js"] {
        machine.file(&format!("project/{edited}"), "edited");
        assert_eq!(machine.ok(&line).digest, before.digest, "{edited}");
        before.unchanged_since().unwrap();
    }
    for new in [
        "lib/b/index.js",
        "lib/b.mjs",
        "lib/package.json",
        "lib/node_modules/sdk/index.js",
        "node_modules/new/x.js",
    ] {
        machine.file(&format!("project/{new}"), "{}");
        assert_ne!(machine.ok(&line).digest, before.digest, "{new}");
        std::fs::remove_file(machine.at(&format!("project/{new}"))).unwrap();
        assert_eq!(machine.ok(&line).digest, before.digest, "{new}");
    }
    for all in ["require(name)", "import (`./${name}`)", "require('./a' + name)"] {
        machine.file("project/lib/b.js", all);
        assert!(hashed(&machine.ok(&line), "package").contains("lib/other.js"), "{all}");
    }
    machine.file("project/lib/b.js", "");
    machine.file("project/package.json", r##"{"imports": {"#x": "./lib/other.js"}}"##);
    assert!(hashed(&machine.ok(&line), "package").contains("lib/other.js"));
}

#[test]
fn a_script_outside_the_project_is_pinned_with_all_code_beside_it() {
    let machine = Machine::new();
    machine.file("tool/server.js", "import './a.js'");
    machine.file("tool/a.js", "");
    machine.file("tool/other.js", "");
    let resolved = machine.ok(&["node", &text(&machine.at("tool/server.js"))]);
    assert_eq!(hashed(&resolved, "script"), names(&["a.js", "other.js", "server.js"]));
}
