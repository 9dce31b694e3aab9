#pragma once
// Starting this program again: as a child, or in the place of itself after a crash.

/// Keeps the process's arguments and environment as they are now, so that the program can be started again as it was,
/// and takes the word that whoever started it again left there out of the environment. Returns 0, or an error number
/// where the program cannot be started again: there is no /proc. Once a process, before any other thread is started.
int csystem_program_remember(void);

/// Whether csystem_program_remember has succeeded.
int csystem_program_is_known(void);

/// The word that this process was started again with; empty where somebody else started it.
const char *csystem_program_word(void);

/// Starts the program again as a child, with the arguments and the environment it was started with itself, and a word.
/// The child inherits two descriptors under their own numbers and nothing else but 1 and 2; it reads nothing, and
/// SIGHUP, SIGINT and SIGTERM, which a terminal sends to both, are left to its parent. Returns 0 or an error number.
int csystem_program_spawn(const char *word, int first, int second, int *child);
