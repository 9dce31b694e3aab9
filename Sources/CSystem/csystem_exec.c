#define _GNU_SOURCE
#include "include/csystem_exec.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

static int limit(int resource, int64_t most) {
  if (most <= 0) return 0;
  struct rlimit now;
  if (getrlimit(resource, &now) < 0) return errno;
  rlim_t wanted = (rlim_t)most;
  // A limit that is lower already stays.
  if (now.rlim_max != RLIM_INFINITY && wanted > now.rlim_max) wanted = now.rlim_max;
  if (now.rlim_cur != RLIM_INFINITY && wanted > now.rlim_cur) wanted = now.rlim_cur;
  struct rlimit changed = {wanted, wanted};
  return setrlimit(resource, &changed) == 0 ? 0 : errno;
}

// In the child, on the parent's memory: nothing but system calls, and no return.
static void become(
  const struct csystem_exec *what, const int *descriptors, pid_t parent, volatile int *failure) {
  struct sigaction standard = {.sa_handler = SIG_DFL};
  // Fails for two of them, and for those of the C library.
  for (int number = 1; number < NSIG; number++) sigaction(number, &standard, NULL);
  int error = 0;
  if (setpgid(0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || chdir(what->folder) < 0) error = errno;
  // One that has died before is not told of any more.
  if (!error && getppid() != parent) _exit(127);
  if (!error) error = limit(RLIMIT_DATA, what->memory);
  if (!error) error = limit(RLIMIT_FSIZE, what->file_size);
  for (int i = 0; i < 3 && !error; i++) {
    if (dup2(descriptors[i], i) < 0) error = errno;
  }
  if (!error) {
    // Ours are marked so anyway; those of libraries may not be.
    syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execve(what->path, what->arguments, what->environment);
    error = errno;
  }
  *failure = error;
  _exit(127);
}

int csystem_exec_start(const struct csystem_exec *what, int *child, int *watch) {
  *child = 0;
  *watch = -1;
  int given[3] = {what->input, what->output, what->errors};
  int descriptors[3] = {-1, -1, -1};
  volatile int failure = 0;
  for (int i = 0; i < 3 && !failure; i++) {
    // Out of the way of those that they become.
    descriptors[i] = fcntl(given[i], F_DUPFD_CLOEXEC, 3);
    if (descriptors[i] < 0) failure = errno;
  }
  if (!failure) {
    sigset_t all, before;
    sigfillset(&all);
    // A handler of ours must not run in the child, which shares our memory until it becomes the program.
    pthread_sigmask(SIG_BLOCK, &all, &before);
    pid_t parent = getpid();
    pid_t process = vfork();
    if (process == 0) become(what, descriptors, parent, &failure);
    if (process < 0) failure = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (process > 0 && failure) {
      while (waitpid(process, NULL, 0) < 0 && errno == EINTR) {}
    } else if (process > 0) {
      *child = process;
#ifdef SYS_pidfd_open
      *watch = (int)syscall(SYS_pidfd_open, process, 0);
#endif
    }
  }
  for (int i = 0; i < 3; i++) {
    if (descriptors[i] >= 0) close(descriptors[i]);
  }
  return failure;
}

static int is_waitable(int child) {
  siginfo_t information;
  information.si_pid = 0;
  int result;
  do {
    result = waitid(P_PID, child, &information, WEXITED | WNOHANG | WNOWAIT);
  } while (result < 0 && errno == EINTR);
  // Whoever has taken its status away has told of its end.
  return result < 0 || information.si_pid == child;
}

int csystem_exec_has_ended(int child, int watch, int milliseconds) {
  if (watch >= 0) {
    struct pollfd entry = {.fd = watch, .events = POLLIN};
    poll(&entry, 1, milliseconds);
    return is_waitable(child);
  }
  for (long waited = 0, pause = 200; !is_waitable(child); waited += pause) {
    if (waited >= milliseconds * 1000L) return 0;
    struct timespec time = {0, pause * 1000};
    nanosleep(&time, NULL);
    if (pause < 10000) pause *= 2;
  }
  return 1;
}

void csystem_exec_reap(int child, int watch, struct csystem_exec_end *end) {
  // Before its number may be given to another.
  kill(-child, SIGKILL);
  int status = 0;
  struct rusage usage = {0};
  pid_t result;
  do {
    result = wait4(child, &status, 0, &usage);
  } while (result < 0 && errno == EINTR);
  if (watch >= 0) close(watch);
  end->code = result > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  end->signal = result > 0 && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  end->cpu_seconds = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec
                     + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
  struct rusage own = {0};
  getrusage(RUSAGE_SELF, &own);
  end->peak_bytes = usage.ru_maxrss > own.ru_maxrss ? (int64_t)usage.ru_maxrss * 1024 : 0;
}

csystem_process csystem_process_hold(int number) {
  csystem_process process = {number, -1};
#ifdef SYS_pidfd_open
  process.handle = (int)syscall(SYS_pidfd_open, number, 0);
#endif
  return process;
}

void csystem_process_kill(csystem_process process) {
#ifdef SYS_pidfd_send_signal
  if (process.handle >= 0) {
    syscall(SYS_pidfd_send_signal, process.handle, SIGKILL, NULL, 0);
    return;
  }
#endif
  kill(process.number, SIGKILL);
}

void csystem_process_close(csystem_process process) {
  if (process.handle >= 0) close(process.handle);
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *place) {
  (void)status;
  (void)place;
  // A folder that could not be read may have been closed by whoever made it.
  if (kind == FTW_DNR) {
    chmod(path, 0700);
    return rmdir(path) < 0 && errno != ENOENT && errno != ENOTEMPTY ? errno : 0;
  }
  return remove(path) < 0 && errno != ENOENT ? errno : 0;
}

int csystem_remove_tree(const char *path) {
  int result = 0;
  // Once more for folders that had to be opened first, and for what was written meanwhile.
  for (int attempt = 0; attempt < 3; attempt++) {
    result = nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    if (result < 0) result = errno;
    if (result == 0 && access(path, F_OK) < 0) return 0;
    if (result == ENOENT) return 0;
  }
  return result;
}
