// All files of a model together: opened, read by the number of each, and how far they are. Runs where reads are served.

import { AttaError, MemoryError, StorageError } from './errors.js';
import { openFile } from './files.js';
import { OK, reasonOf } from './reasons.js';
import { openStore } from './storage.js';

/** Time between two reports of a download. */
const REPORT_MS = 100;
const UNKEPT = 'the model is not kept for the next visit: ';

/** The files of a model. `report({ loaded, total, cached })` is called now and then, and at the end of the download. */
export class Shards {
  /**
   * `shards` as of source.js; `cache` and `folder` as of `load`; the rest is as of `openFile`. Files that are not kept are
   * read once, so that they must fit `fitBytes`. A browser that keeps no files, or has no room, is no error if they do.
   */
  static async open(shards, { cache = 'opfs', fitBytes = Infinity, note = () => {}, ...how }) {
    if (cache === 'none') return Shards.#unkept(shards, fitBytes, how);
    try {
      return await Shards.#kept(shards, fitBytes, note, how);
    } catch (error) {
      const isAboutRoom = error instanceof StorageError && ['no_storage', 'quota'].includes(error.code);
      if (!isAboutRoom || fitBytes === 0) throw error;
      const unkept = await Shards.#unkept(shards, fitBytes, how).catch(() => { throw error; });
      note(UNKEPT + error.message);
      return unkept;
    }
  }

  static async #kept(shards, fitBytes, note, { store, folder, ...how }) {
    const isRemote = shards.some(({ url }) => url && !url.startsWith('file:'));
    const full = (error, total) => {
      if (total > fitBytes) return false;
      note(UNKEPT + error.message);
      return true;
    };
    return Shards.#all(shards, { ...how, full, cache: 'opfs', store: store ?? (isRemote ? await openStore(folder) : null) });
  }

  static async #unkept(shards, fitBytes, how) {
    const all = await Shards.#all(shards, { ...how, cache: 'none', store: null });
    const { total } = all.amounts();
    if (total <= fitBytes || !all.isArriving) return all;
    all.close();
    throw new MemoryError(`The model has ${total} bytes, and the budget ${fitBytes}: one that is not kept must fit.`, 'memory');
  }

  static async #all(shards, { report = () => {}, full, ...how }) {
    const files = [];
    const all = new Shards(files, report);
    // Before all are open their sum is unknown.
    const areOpen = () => files.length === shards.length;
    const told = {
      progress: () => areOpen() && all.#progress(),
      full: (error) => areOpen() && full(error, all.amounts().total),
    };
    try {
      for (const shard of shards) files.push(await openFile(shard, { ...how, ...told }));
    } catch (error) {
      all.close();
      throw error;
    }
    all.#progress();
    return all;
  }

  constructor(files, report) {
    Object.assign(this, { files, report, lastReport: 0, error: null });
  }

  /** What the module is told of the files. */
  describe() {
    return this.files.map(({ name, nBytes, version, isArriving }) => ({ name, bytes: nBytes, version, arriving: isArriving }));
  }

  /** Fills `buffer`, and gives 0 or a reason; the error itself is kept. */
  async read(shard, offset, buffer) {
    try {
      await this.files[shard].read(offset, buffer);
      return OK;
    } catch (error) {
      return this.#failed(error);
    }
  }

  /** As `read`, of bytes that are here. */
  readNow(shard, offset, buffer) {
    try {
      this.files[shard].readNow(offset, buffer);
      return OK;
    } catch (error) {
      return this.#failed(error);
    }
  }

  #failed(error) {
    this.error = error instanceof AttaError ? error : new AttaError(String(error?.message ?? error), 'failed', { cause: error });
    return reasonOf(this.error);
  }

  /** Waits until all files are here, where reads cannot wait. */
  async complete() {
    const passing = this.files.find((file) => !file.readNow);
    if (passing) throw new StorageError(`${passing.name}: on one thread a file of a server can be used only if the browser keeps it.`, 'no_storage');
    await Promise.all(this.files.map((file) => file.complete?.()));
  }

  get isArriving() {
    return this.files.some((file) => file.isArriving);
  }

  #progress() {
    const now = Date.now();
    if (this.isArriving && now - this.lastReport < REPORT_MS) return;
    this.lastReport = now;
    this.report(this.amounts());
  }

  /** Bytes that are here, of all, and of those how many were here before. */
  amounts() {
    const sum = (of) => this.files.reduce((total, file) => total + of(file), 0);
    return {
      loaded: sum((file) => (file.isFull ? file.nBytes : file.cache?.map.nBytesSet ?? file.nBytes)),
      total: sum((file) => file.nBytes),
      cached: sum((file) => file.nCached ?? file.nBytes),
      fetched: sum((file) => file.nFetched ?? 0),
    };
  }

  close() {
    this.files.forEach((file) => file.close());
  }
}
