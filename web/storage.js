// Where cached files lie: the origin's private file system, a folder under Node, or memory in tests. All have
//   open(name) → { read(buffer, {at}), write(buffer, {at}), truncate(n), flush(), getSize(), close() }, which do not wait,
//   remove(name), names(), lock(name) → a function that unlocks, or null, and estimate() → { usage, quota }.
// A store knows no meaning of its files.

import { StorageError } from './errors.js';
import { isNode } from './platform.js';

const FOLDER = 'atta';

/** The store of this place. Only a worker of a browser can open its files. */
export async function openStore(folder) {
  return isNode ? nodeStore(folder) : opfsStore();
}

async function opfsStore() {
  let root;
  try {
    root = await (await navigator.storage.getDirectory()).getDirectoryHandle(FOLDER, { create: true });
  } catch (error) {
    if (error.name === 'QuotaExceededError') throw new StorageError(`The browser gives no more storage: ${error.message}`, 'quota', { cause: error });
    throw new StorageError(`This browser keeps no files (a private window, maybe): ${error.message}`, 'no_storage', { cause: error });
  }
  return {
    open: async (name) => (await root.getFileHandle(name, { create: true })).createSyncAccessHandle(),
    remove: (name) => root.removeEntry(name).catch(() => {}),
    names: async () => Array.fromAsync(root.keys()),
    lock: (name) => webLock(`${FOLDER}/${name}`),
    estimate: () => navigator.storage.estimate(),
  };
}

/** Takes a Web Lock if it is free. */
function webLock(name) {
  return new Promise((resolve, reject) => {
    navigator.locks
      .request(name, { ifAvailable: true }, (lock) => {
        if (!lock) return void resolve(null);
        return new Promise((unlock) => resolve(unlock));
      })
      .catch(reject);
  });
}

async function nodeStore(folder) {
  const [fs, path, os] = await Promise.all(['node:fs', 'node:path', 'node:os'].map((name) => import(name)));
  const home = process.env.XDG_CACHE_HOME ?? path.join(os.homedir(), '.cache');
  const root = folder ?? path.join(home, 'atta', 'web');
  fs.mkdirSync(root, { recursive: true });
  return {
    open: async (name) => nodeHandle(fs, fs.openSync(path.join(root, name), fs.constants.O_RDWR | fs.constants.O_CREAT, 0o600)),
    remove: async (name) => fs.rmSync(path.join(root, name), { force: true }),
    names: async () => fs.readdirSync(root),
    lock: async (name) => nodeLock(fs, path.join(root, `${name}.lock`)),
    estimate: async () => {
      const { bavail, bsize } = fs.statfsSync(root);
      return { usage: 0, quota: bavail * bsize };
    },
  };
}

/** A file with the number of the process that has the lock; one of a process that is gone is replaced. */
function nodeLock(fs, name) {
  const take = () => fs.writeFileSync(name, String(process.pid), { flag: 'wx' });
  try {
    take();
  } catch (error) {
    if (error.code !== 'EEXIST') throw error;
    const owner = Number(fs.readFileSync(name, 'utf8'));
    if (owner === process.pid || isAlive(owner)) return null;
    fs.rmSync(name, { force: true });
    take();
  }
  return () => fs.rmSync(name, { force: true });
}

function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === 'EPERM';
  }
}

function nodeHandle(fs, fd) {
  return {
    read: (buffer, { at }) => fs.readSync(fd, buffer, 0, buffer.length, at),
    write: (buffer, { at }) => fs.writeSync(fd, buffer, 0, buffer.length, at),
    truncate: (n) => fs.ftruncateSync(fd, n),
    flush: () => fs.fdatasyncSync(fd),
    getSize: () => fs.fstatSync(fd).size,
    close: () => fs.closeSync(fd),
  };
}

/** A store in memory, for tests: at most `quota` bytes. */
export function memoryStore(quota = Infinity) {
  const files = new Map();
  const locks = new Set();
  const size = () => [...files.values()].reduce((sum, { bytes }) => sum + bytes.length, 0);
  const grow = (file, n) => {
    if (size() - file.bytes.length + n > quota) throw Object.assign(new Error('full'), { name: 'QuotaExceededError' });
    const bytes = new Uint8Array(n);
    bytes.set(file.bytes.subarray(0, n));
    file.bytes = bytes;
  };
  const handle = (file) => ({
    read(buffer, { at }) {
      const found = file.bytes.subarray(at, at + buffer.length);
      buffer.set(found);
      return found.length;
    },
    write(buffer, { at }) {
      if (at + buffer.length > file.bytes.length) grow(file, at + buffer.length);
      file.bytes.set(buffer, at);
      return buffer.length;
    },
    truncate: (n) => grow(file, n),
    flush() {},
    getSize: () => file.bytes.length,
    close() {},
  });
  return {
    files,
    async open(name) {
      if (!files.has(name)) files.set(name, { bytes: new Uint8Array() });
      return handle(files.get(name));
    },
    async remove(name) {
      files.delete(name);
    },
    names: async () => [...files.keys()],
    async lock(name) {
      if (locks.has(name)) return null;
      locks.add(name);
      return () => locks.delete(name);
    },
    estimate: async () => ({ usage: size(), quota }),
  };
}
