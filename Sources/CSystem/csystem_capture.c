#define _GNU_SOURCE
#include "csystem_capture.h"

#include "csystem_take_up.h"
#include "csystem_threads.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int original = -1;
static int captured = -1;
static int inherited = -1;
static int is_terminal = 0;
static atomic_int is_active = 0;
// How far the captured bytes were taken. Atomic because the fault handler reads it from any thread.
static _Atomic long taken = 0;
// So many bytes are shown in a crash even when they were taken: they may have been taken and not shown, and they are
// most likely what explains it.
enum { kept_bytes = 4096 };
// So many threads may call exit at once.
enum { most_exits = 32 };

static const int faults[] = {SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS};
enum { fault_count = sizeof faults / sizeof *faults };
// What handled them before: Swift's backtracer where there is one, a sanitizer, or nothing.
static struct sigaction earlier[fault_count];
// What somebody else's code is being run for; NULL for none.
static _Atomic(const char *) guarded = NULL;
static pthread_t guarded_thread;
enum { guarded_exit_code = 4 };

// From here on only calls that are safe in a signal handler.

static void put(const char *text, long length) {
  while (length > 0) {
    long written = write(original >= 0 ? original : 2, text, length);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text += written;
    length -= written;
  }
}

static void copy_rest(void) {
  if (!atomic_exchange(&is_active, 0)) return;
  // A progress bar may stand in the line.
  if (is_terminal) put("\r\033[J", 4);
  char buffer[4096];
  long offset = atomic_load(&taken) - kept_bytes;
  if (offset < 0) offset = 0;
  for (;;) {
    long count = pread(captured, buffer, sizeof buffer, offset);
    if (count <= 0) return;
    put(buffer, count);
    offset += count;
  }
}

// Does what is left to do in this program before it takes up again.
static void take_up(int number) {
  if (is_terminal) put("\r\033[J", 4);
  dup2(original, 2);
  // What was not yet taken goes on with the run.
  csystem_take_up(number, captured, atomic_load(&taken));
}

// What others do meanwhile is their own affair.
static const char *guarded_here(void) {
  const char *text = atomic_load(&guarded);
  return text && pthread_equal(guarded_thread, pthread_self()) ? text : NULL;
}

static void say_guarded(const char *text, const char *end) {
  const char *parts[] = {"pipeline: ", text, end, "\n"};
  for (int i = 0; i < 4; i++) put(parts[i], strlen(parts[i]));
}

static void on_fault(int number, siginfo_t *information, void *context) {
  int error = errno;
  if (atomic_load(&is_active) && csystem_take_up_applies(information)) take_up(number);
  copy_rest();
  // Who comes next (Swift's backtracer, a core dump's helper) writes where people read.
  if (original >= 0) dup2(original, 2);
  const char *text = guarded_here();
  if (text) say_guarded(text, " and crashed");
  for (int i = 0; i < fault_count; i++) {
    if (faults[i] != number) continue;
    struct sigaction before = earlier[i];
    sigaction(number, &before, NULL);
    errno = error;
    if (before.sa_flags & SA_SIGINFO) {
      before.sa_sigaction(number, information, context);
      return;
    }
    if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
      before.sa_handler(number);
      return;
    }
  }
  char line[] = "pipeline: crashed with signal 00\n";
  line[sizeof line - 4] = '0' + number / 10 % 10;
  line[sizeof line - 3] = '0' + number % 10;
  put(line, sizeof line - 1);
  // The end, with the status that the fault would have given.
  raise(number);
}

// A library that calls exit() has often just said why.
static void on_exit_call(void) {
  const char *text = guarded_here();
  if (text) {
    copy_rest();
    say_guarded(text, " and ended the program");
    _exit(guarded_exit_code);
  }
  if (atomic_load(&is_active) && csystem_take_up_applies(NULL)) take_up(0);
  copy_rest();
}

void csystem_capture_continue(int file, long offset) {
  inherited = file;
  atomic_store(&taken, offset);
}

static void watch_faults(void) {
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < fault_count; i++) {
    sigaction(faults[i], NULL, &earlier[i]);
    // A fault that someone chose to ignore stays ignored.
    if (earlier[i].sa_handler != SIG_IGN || earlier[i].sa_flags & SA_SIGINFO) sigaction(faults[i], &action, NULL);
  }
}

static pthread_mutex_t guarding = PTHREAD_MUTEX_INITIALIZER;
static int watches_faults = 0;

void csystem_guard_begin(const char *text) {
  static int is_registered = 0;
  pthread_mutex_lock(&guarding);
  if (!is_registered) {
    is_registered = 1;
    atexit(on_exit_call);
    at_quick_exit(on_exit_call);
  }
  // Where stderr is captured, faults are watched anyway.
  watches_faults = original < 0;
  if (watches_faults) watch_faults();
  guarded_thread = pthread_self();
  atomic_store(&guarded, text);
}

void csystem_guard_end(void) {
  atomic_store(&guarded, NULL);
  // Not where standard error was captured meanwhile: its handlers are here to stay.
  if (watches_faults && original < 0) {
    for (int i = 0; i < fault_count; i++) sigaction(faults[i], &earlier[i], NULL);
  }
  pthread_mutex_unlock(&guarding);
}

int csystem_capture_begin(int *where) {
  if (original >= 0) return EALREADY;
  int copy = fcntl(2, F_DUPFD_CLOEXEC, 3);
  if (copy < 0) return errno;
  int file = inherited >= 0 ? inherited : memfd_create("stderr", MFD_CLOEXEC);
  int failure = 0;
  if (file < 0 || fcntl(file, F_SETFL, O_APPEND) < 0 || dup2(file, 2) < 0) {
    failure = errno;
    if (file >= 0) close(file);
    close(copy);
    return failure;
  }
  captured = file;
  is_terminal = isatty(copy);
  original = copy;
  atomic_store(&is_active, 1);
  csystem_use_fault_stack();
  watch_faults();
  // Each call of exit takes one away: of two threads that call it at once, the second would find none and end the
  // process under the first.
  for (int i = 0; i < most_exits; i++) {
    atexit(on_exit_call);
    at_quick_exit(on_exit_call);
  }
  *where = copy;
  return 0;
}

long csystem_capture_take(char *buffer, long capacity) {
  if (captured < 0) return 0;
  long offset = atomic_load(&taken);
  long count = pread(captured, buffer, capacity, offset);
  if (count <= 0) return 0;
  atomic_store(&taken, offset + count);
  // What was taken costs no memory any more, however much a library has to say.
  long past = offset + count - kept_bytes;
  if (past > 0) fallocate(captured, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, past);
  return count;
}

void csystem_capture_end(void) {
  if (original >= 0 && atomic_exchange(&is_active, 0)) dup2(original, 2);
}
