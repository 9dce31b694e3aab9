#pragma once

#include <stdint.h>

// Running other programs: in a process group of their own, with limits, and nothing inherited but three descriptors.

struct csystem_exec {
  /// The file to run, and its arguments and environment, each closed by NULL.
  const char *path;
  char *const *arguments;
  char *const *environment;
  /// The folder it works in.
  const char *folder;
  /// Descriptors that become 0, 1 and 2.
  int input, output, errors;
  /// Bytes of data that each process may have; 0 for no limit.
  int64_t memory;
  /// Bytes that each file it writes may have; 0 for no limit.
  int64_t file_size;
};

/// Starts a program. It is the leader of a new process group, has no signal blocked or ignored, and dies with the thread
/// that started it: call csystem_exec_reap on the same thread. `watch` is a descriptor that is readable once it has
/// ended, or -1 where the kernel has none. Returns 0 or an error number.
int csystem_exec_start(const struct csystem_exec *what, int *child, int *watch);

/// Waits for the end of a program that was started, at most so many milliseconds. Returns 1 once it has ended; it is
/// not reaped, so that its number, and its group's, still stand for it.
int csystem_exec_has_ended(int child, int watch, int milliseconds);

/// How a program has ended.
struct csystem_exec_end {
  /// -1 where a signal ended it.
  int code;
  int signal;
  double cpu_seconds;
  /// The most memory it held, in bytes; 0 where the kernel does not tell: its count begins with the most that the process
  /// held by which it was started.
  int64_t peak_bytes;
};

/// Ends whatever is left of the program's group and reaps the program; waits for it.
void csystem_exec_reap(int child, int watch, struct csystem_exec_end *end);

/// Removes a folder with all that is in it; links are not followed. Returns 0 or an error number.
int csystem_remove_tree(const char *path);

/// A process that is looked at before it is ended: its number stays its own while it is held.
typedef struct csystem_process {
  int number;
  /// Below 0 where the kernel has none; then the number alone must do.
  int handle;
} csystem_process;

csystem_process csystem_process_hold(int number);
void csystem_process_kill(csystem_process process);
void csystem_process_close(csystem_process process);
