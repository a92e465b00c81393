#!/usr/bin/env -S node --no-warnings
// Runs a program built for wasm32-wasip1 under node: `wasi.mjs PROGRAM.wasm ARGUMENTS`; Cargo's runner for that target.
// The program sees a directory for temporary files as /tmp, the working directory under its own name, no
// environment, and no threads.
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { argv, cwd, exit } from "node:process";
import { WASI } from "node:wasi";

const temporary = await mkdtemp(join(tmpdir(), "atta-wasi-"));
const wasi = new WASI({
    version: "preview1",
    args: argv.slice(2),
    env: {},
    preopens: { "/tmp": temporary, [cwd()]: cwd() },
});
let code = 1;
try {
    const module = await WebAssembly.compile(await readFile(argv[2]));
    code = wasi.start(await WebAssembly.instantiate(module, wasi.getImportObject()));
} finally {
    await rm(temporary, { recursive: true });
}
exit(code);
