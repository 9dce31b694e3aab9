#define _GNU_SOURCE
#include "csystem_threads.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

// A decoder that recurses too deep has no stack left for a handler of the fault. Handlers may have a stack of their own,
// but every thread has to ask for it itself, and most threads here belong to libraries: Dispatch, GLib, codecs. So this
// program stands in for pthread_create, which all of them call, and lets each new thread ask first.

enum { stack_bytes = 64 << 10 };

static pthread_key_t stack_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void drop_stack(void *stack) {
  stack_t none = {.ss_flags = SS_DISABLE};
  sigaltstack(&none, NULL);
  munmap(stack, stack_bytes);
}

static void make_key(void) { pthread_key_create(&stack_key, drop_stack); }

void csystem_use_fault_stack(void) {
  stack_t present;
  // Whoever has one already knows why.
  if (sigaltstack(NULL, &present) < 0 || !(present.ss_flags & SS_DISABLE)) return;
  void *memory = mmap(NULL, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  stack_t stack = {.ss_sp = memory, .ss_size = stack_bytes};
  pthread_once(&once, make_key);
  if (sigaltstack(&stack, NULL) < 0 || pthread_setspecific(stack_key, memory) != 0) drop_stack(memory);
}

// A sanitizer stands in for pthread_create itself.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif

#ifndef HAS_SANITIZER
struct begin {
  void *(*body)(void *);
  void *argument;
};

static void *begin_thread(void *pointer) {
  struct begin begin = *(struct begin *)pointer;
  free(pointer);
  csystem_use_fault_stack();
  return begin.body(begin.argument);
}

typedef int (*create_function)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

int pthread_create(
    pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument) {
  static _Atomic(create_function) next;
  create_function create = atomic_load(&next);
  if (!create) {
    create = (create_function)dlsym(RTLD_NEXT, "pthread_create");
    if (!create) return EAGAIN;
    atomic_store(&next, create);
  }
  struct begin *begin = malloc(sizeof *begin);
  if (!begin) return EAGAIN;
  *begin = (struct begin){body, argument};
  int failure = create(thread, attributes, begin_thread, begin);
  if (failure) free(begin);
  return failure;
}
#endif
