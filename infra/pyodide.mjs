// Calls `main` of a Python program in Pyodide, CPython for WebAssembly, with one folder of this machine in its sight.
// Usage: node pyodide.mjs PROGRAM FOLDER [ARGUMENT ...]; exits with what `main(folder, argument, ...)` returns.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

// Of the project in whose folder this runs, wherever this file lies.
const { loadPyodide } = createRequire(`${process.cwd()}/`)("pyodide");

const FOLDER = "/folder";
const [program, folder, ...rest] = process.argv.slice(2);

const python = await loadPyodide();
python.FS.mkdirTree(FOLDER);
python.FS.mount(python.FS.filesystems.NODEFS, { root: folder }, FOLDER);
const names = python.toPy({ __name__: "program" });
python.runPython(readFileSync(program, "utf8"), { globals: names });
process.exitCode = names.get("main")(FOLDER, ...rest);
