#define _GNU_SOURCE
#include "csystem_become.h"

#include "include/csystem_program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

extern char **environ;

static const char program[] = "/proc/self/exe";
// A variable and not an argument: arguments are the user's, and shown to others.
#define VARIABLE "PIPELINE_STARTED_AGAIN"
enum { longest_word = 64 };

static char word_of_this[longest_word];
static char **arguments;
// As it was at the start: the program itself sets TZ later on. The last place before the closing NULL is for the word.
static char **variables;
static char variable_of_exec[sizeof VARIABLE + longest_word];
static int variable_count;

static char **read_arguments(void) {
  int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (file < 0) return NULL;
  size_t size = 0, capacity = 4096;
  char *bytes = malloc(capacity + 1);
  while (bytes) {
    long count = read(file, bytes + size, capacity - size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    size += count;
    if (size < capacity) continue;
    char *larger = realloc(bytes, (capacity *= 2) + 1);
    if (!larger) free(bytes);
    bytes = larger;
  }
  close(file);
  if (!bytes) return NULL;
  bytes[size] = 0;
  int count = 0;
  for (size_t i = 0; i < size; i++) count += bytes[i] == 0;
  char **list = count > 0 ? calloc(count + 1, sizeof *list) : NULL;
  char *next = bytes;
  for (int i = 0; list && i < count; i++) {
    list[i] = next;
    next += strlen(next) + 1;
  }
  if (!list) free(bytes);
  return list;
}

int csystem_program_remember(void) {
  if (arguments) return EALREADY;
  const char *word = getenv(VARIABLE);
  if (word) {
    snprintf(word_of_this, sizeof word_of_this, "%s", word);
    unsetenv(VARIABLE);
  }
  // Whoever ignores the end of children would also take their statuses away.
  signal(SIGCHLD, SIG_DFL);
  if (access(program, X_OK) < 0) return errno;
  int count = 0;
  while (environ[count]) count++;
  char **copy = calloc(count + 2, sizeof *copy);
  if (!copy) return ENOMEM;
  for (int i = 0; i < count; i++) {
    if (!(copy[i] = strdup(environ[i]))) return ENOMEM;
  }
  variables = copy;
  variable_count = count;
  arguments = read_arguments();
  if (!arguments) return ENOENT;
  if (word_of_this[0]) {
    // The kernel has called the process after /proc/self/exe.
    const char *slash = strrchr(arguments[0], '/');
    prctl(PR_SET_NAME, slash ? slash + 1 : arguments[0]);
  }
  return 0;
}

int csystem_program_is_known(void) { return arguments != NULL; }

const char *csystem_program_word(void) { return word_of_this; }

int csystem_program_spawn(const char *word, int first, int second, int *child) {
  if (!arguments) return ENOSYS;
  if (strlen(word) >= longest_word) return EINVAL;
  char variable[sizeof variable_of_exec];
  snprintf(variable, sizeof variable, VARIABLE "=%s", word);
  // Several threads may start children at once.
  char **own = malloc((variable_count + 2) * sizeof *own);
  if (!own) return ENOMEM;
  memcpy(own, variables, variable_count * sizeof *own);
  own[variable_count] = variable;
  own[variable_count + 1] = NULL;

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  // A descriptor that is put in its own place loses its close-on-exec flag.
  posix_spawn_file_actions_adddup2(&actions, first, first);
  posix_spawn_file_actions_adddup2(&actions, second, second);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGHUP);
  sigaddset(&mask, SIGINT);
  sigaddset(&mask, SIGTERM);
  posix_spawnattr_setsigmask(&attributes, &mask);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t identifier = 0;
  int failure = posix_spawn(&identifier, program, &actions, &attributes, arguments, own);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  free(own);
  *child = identifier;
  return failure;
}

void csystem_program_become(const char *word) {
  if (!arguments) return;
  char *end = variable_of_exec;
  const char *start = VARIABLE "=";
  while (*start) *end++ = *start++;
  for (int i = 0; word[i] && i < longest_word - 1; i++) *end++ = word[i];
  *end = 0;
  variables[variable_count] = variable_of_exec;
  variables[variable_count + 1] = NULL;
  execve(program, arguments, variables);
  variables[variable_count] = NULL;
}
