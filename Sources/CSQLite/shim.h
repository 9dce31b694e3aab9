#pragma once
// Variable arguments and casts of integers to pointers, which Swift cannot call or see.
#include <sqlite3.h>

#define CSQLITE static inline __attribute__((unused))

/// Binds a copy of the bytes; none of them is an empty value and not NULL.
CSQLITE int csqlite_bind_blob(
    sqlite3_stmt *_Nonnull statement, int index, const void *_Nullable bytes, sqlite3_uint64 count) {
  if (count == 0) return sqlite3_bind_zeroblob(statement, index, 0);
  return sqlite3_bind_blob64(statement, index, bytes, count, SQLITE_TRANSIENT);
}

/// Binds a copy of the UTF-8 text.
CSQLITE int csqlite_bind_text(
    sqlite3_stmt *_Nonnull statement, int index, const char *_Nullable text, sqlite3_uint64 count) {
  return sqlite3_bind_text64(statement, index, count ? text : "", count, SQLITE_TRANSIENT, SQLITE_UTF8);
}

/// Treats the file as one that somebody else may have written: its schema runs nothing, and nothing writes around SQL.
CSQLITE int csqlite_distrust(sqlite3 *_Nonnull database) {
  int code = sqlite3_db_config(database, SQLITE_DBCONFIG_DEFENSIVE, 1, (int *)0);
  return code ? code : sqlite3_db_config(database, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, (int *)0);
}
