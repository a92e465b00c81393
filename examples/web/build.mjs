// Puts the page together: the server's page, the package with its modules, the built-in model, and what is in this folder.
// `node examples/web/build.mjs [FOLDER]`, after `cargo xtask web`. Bundles and minifies nothing.

import { createHash } from 'node:crypto';
import { cp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join, relative, resolve } from 'node:path';
import { argv } from 'node:process';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, '../..');
const dist = resolve(argv[2] ?? join(here, 'dist'));
const OURS = ['api.js', 'models.js', 'models.css', 'isolate.js', 'sw.js', 'manifest.webmanifest', 'icon.svg'];
const ABSENT = ['cluster.html', 'cluster.js', 'cluster.css'];

await rm(dist, { recursive: true, force: true });
await mkdir(dist, { recursive: true });
await cp(join(root, 'crates/server/web'), dist, { recursive: true, filter: (path) => !ABSENT.some((name) => path.endsWith(name)) });
for (const part of ['index.js', 'workers', 'dist', ...(await modules())]) {
  await cp(join(root, 'web', part), join(dist, 'atta', part), { recursive: true });
}
await cp(join(root, 'crates/cli/assets/home.gguf'), join(dist, 'home.gguf'));
for (const name of OURS) await cp(join(here, name), join(dist, name));
await writeFile(join(dist, 'index.html'), page(await readFile(join(dist, 'index.html'), 'utf8')));
const files = await list(dist);
const version = await hash(files);
// The model is in the storage of the page, as all models are, and the service worker is no file of its own cache.
const kept = files.filter((name) => !['sw.js', 'files.js', 'home.gguf'].includes(name));
const isLater = (name) => name.startsWith('atta/dist/') || name.endsWith('.woff2');
const constant = (name, value) => `const ${name} = ${JSON.stringify(value, null, 1)};\n`;
const written = { VERSION: version, FILES: ['./', ...kept.filter((name) => !isLater(name))], LATER: kept.filter(isLater) };
await writeFile(join(dist, 'files.js'), Object.entries(written).map(([name, value]) => constant(name, value)).join(''));
console.log(`${dist}: ${files.length} files, version ${version}`);

/** The modules of JavaScript of the package, without its tests. */
async function modules() {
  return (await readdir(join(root, 'web'))).filter((name) => name.endsWith('.js'));
}

/** The server's page with our files in it. */
function page(html) {
  const app = '<script type="module" src="app.js" blocking="render"></script>';
  if (!html.includes(app)) throw new Error('index.html of the server has another line for app.js');
  const ours = [
    '<link rel="manifest" href="manifest.webmanifest">',
    '<meta name="theme-color" content="#358058">',
    '<link rel="stylesheet" href="models.css">',
    '<script src="isolate.js"></script>',
  ];
  return html.replace(app, [...ours, app].join('\n'));
}

async function list(folder) {
  const found = await readdir(folder, { recursive: true, withFileTypes: true });
  return found.filter((entry) => entry.isFile()).map((entry) => relative(folder, join(entry.parentPath, entry.name)).replaceAll('\\', '/')).sort();
}

async function hash(names) {
  const sum = createHash('sha256');
  for (const name of names) sum.update(name).update(await readFile(join(dist, name)));
  return sum.digest('hex').slice(0, 12);
}
