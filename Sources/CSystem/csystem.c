#define _GNU_SOURCE
#include "csystem.h"
#include <sys/timex.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

int csystem_allowed_processors(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

void csystem_bound_allocator(int arenas, int map_threshold) {
  mallopt(M_ARENA_MAX, arenas);
  mallopt(M_MMAP_THRESHOLD, map_threshold);
}

void csystem_release_memory(void) { malloc_trim(0); }

int csystem_rename_new(const char *from, const char *to) {
  return renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0 ? 0 : errno;
}

int csystem_file_system(const char *path, unsigned *number) {
  struct statfs status;
  if (statfs(path, &status) < 0) return errno;
  *number = (unsigned)status.f_type;
  return 0;
}

int csystem_memory_file(void) { return memfd_create("pipeline", MFD_CLOEXEC); }

int csystem_unnamed_file(const char *folder) {
  int file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  // Some file systems can't: that of containers on older kernels, network shares.
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return file;
  char path[4096];
  int length = snprintf(path, sizeof path, "%s/.pipeline-XXXXXX.tmp", folder);
  if (length < 0 || (size_t)length >= sizeof path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  file = mkostemps(path, 4, O_CLOEXEC);
  if (file >= 0) unlink(path);
  return file;
}

int csystem_clock_state(void) {
  // Without a mode it only asks.
  struct timex state = {0};
  int found = adjtimex(&state);
  return found < 0 ? -1 : found != TIME_ERROR;
}

long long csystem_heap_bytes(void) {
  struct mallinfo2 info = mallinfo2();
  return (long long)(info.uordblks + info.hblkhd);
}

void csystem_crash_quietly(void) {
  static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) signal(signals[i], SIG_DFL);
  struct rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
}
