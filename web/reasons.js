// Why a read failed, as the module knows it: numbers, whose words are in crates/web/src/ranges.rs.

import { AbortError, AttaError, SourceError, StorageError } from './errors.js';

export const OK = 0;
const OTHER = 8;

/** The number that a read returns to the module for an error. */
export function reasonOf(error) {
  if (error instanceof AbortError) return 1;
  if (error instanceof SourceError) return { changed: 3, truncated: 4 }[error.code] ?? 2;
  if (error instanceof StorageError) return { quota: 5, evicted: 6 }[error.code] ?? OTHER;
  return error instanceof AttaError ? 2 : OTHER;
}
