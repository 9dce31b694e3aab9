#define _GNU_SOURCE
#include "csystem_journal.h"

#include "csystem_become.h"
#include "csystem_take_up.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
  temporary_count = 256,
  // More than there may be compute workers.
  child_count = 1100,
  longest_path = 4096,
  first_ended = 128,
  // A program that crashes so often has something else wrong with it than a picture.
  most_crashes = 100,
};
static const uint64_t magic = 0x31656e696c657069;

struct temporary {
  // 0 for a free place, -1 while it is being filled or emptied, else the process that has the file.
  _Atomic int32_t owner;
  char path[longest_path];
};

// A file that gets its name. Whether it had done so when the program crashed is seen by its number.
struct naming {
  // 0 for nothing, 1 for a name that something may have had, 2 for a new one.
  _Atomic int32_t kind;
  int32_t owner;
  uint64_t device, number;
  char path[longest_path];
};

struct journal {
  uint64_t magic;
  int64_t items;
  int64_t size;
  int32_t owner;
  _Atomic int64_t fields[csystem_field_count];
  _Atomic int32_t children[child_count];
  struct temporary temporaries[temporary_count];
  _Atomic uint64_t next_naming;
  struct naming namings[csystem_naming_count];
  _Atomic uint8_t states[];
};

static struct journal *journal;
static int descriptor = -1;

enum { disarmed, armed, under_way };
static atomic_int arming = disarmed;

// MARK: The file

int csystem_journal_make(int64_t items) {
  if (journal) return EALREADY;
  if (items < 0) return EINVAL;
  int file = memfd_create("journal", MFD_CLOEXEC);
  if (file < 0) return errno;
  int64_t size = sizeof(struct journal) + items;
  void *map = MAP_FAILED;
  if (ftruncate(file, size) == 0) map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (map == MAP_FAILED) {
    int failure = errno;
    close(file);
    return failure;
  }
  journal = map;
  descriptor = file;
  journal->items = items;
  journal->size = size;
  journal->owner = getpid();
  journal->magic = magic;
  for (int i = csystem_plan_descriptor; i <= csystem_capture_descriptor; i++) journal->fields[i] = -1;
  journal->fields[csystem_ended_at_crash] = -1;
  return 0;
}

int csystem_journal_open(int file, pid_t owner) {
  if (journal) return EALREADY;
  struct stat status;
  if (fstat(file, &status) < 0) return errno;
  if (status.st_size < (off_t)sizeof(struct journal)) return EINVAL;
  struct journal *map = mmap(NULL, status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (map == MAP_FAILED) return errno;
  if (map->magic != magic || map->size != status.st_size || map->owner != owner ||
      map->items != status.st_size - (int64_t)sizeof(struct journal)) {
    munmap(map, status.st_size);
    return EINVAL;
  }
  journal = map;
  descriptor = file;
  fcntl(file, F_SETFD, FD_CLOEXEC);
  // Only the program itself has inherited these.
  if (owner != getpid()) return 0;
  for (int i = csystem_plan_descriptor; i <= csystem_capture_descriptor; i++) {
    int kept = journal->fields[i];
    if (kept >= 0) fcntl(kept, F_SETFD, FD_CLOEXEC);
  }
  return 0;
}

int csystem_journal_descriptor(void) { return descriptor; }
int64_t csystem_journal_items(void) { return journal->items; }

void csystem_journal_mark(int64_t item, int value) {
  // While a thread replaces the program, the kernel refuses new threads to all others, and libraries take that for a
  // damaged picture. No item ends any more; what is in flight is tried again.
  while (value >= first_ended && atomic_load(&arming) == under_way) poll(NULL, 0, 10);
  if (item >= 0 && item < journal->items) atomic_store_explicit(&journal->states[item], value, memory_order_release);
}

int csystem_journal_state(int64_t item) {
  return item >= 0 && item < journal->items ? atomic_load_explicit(&journal->states[item], memory_order_acquire) : 0;
}

int64_t csystem_journal_get(enum csystem_journal_field field) { return atomic_load(&journal->fields[field]); }
void csystem_journal_set(enum csystem_journal_field field, int64_t value) {
  atomic_store(&journal->fields[field], value);
}

// MARK: Temporary files and children

void csystem_journal_add_temporary(const char *path) {
  size_t length = strlen(path);
  if (length >= longest_path) return;
  for (int i = 0; i < temporary_count; i++) {
    struct temporary *place = &journal->temporaries[i];
    int32_t free_place = 0;
    if (!atomic_compare_exchange_strong(&place->owner, &free_place, -1)) continue;
    memcpy(place->path, path, length + 1);
    atomic_store(&place->owner, getpid());
    return;
  }
}

void csystem_journal_remove_temporary(const char *path) {
  int32_t self = getpid();
  for (int i = 0; i < temporary_count; i++) {
    struct temporary *place = &journal->temporaries[i];
    if (atomic_load(&place->owner) != self || strcmp(place->path, path) != 0) continue;
    atomic_compare_exchange_strong(&place->owner, &self, 0);
    return;
  }
}

int csystem_journal_take_temporary(pid_t owner, char *path) {
  for (int i = 0; i < temporary_count; i++) {
    struct temporary *place = &journal->temporaries[i];
    int32_t found = atomic_load(&place->owner);
    if (found == 0 || found == -1 || (owner != 0 && found != owner)) continue;
    if (!atomic_compare_exchange_strong(&place->owner, &found, -1)) continue;
    memcpy(path, place->path, longest_path);
    path[longest_path - 1] = 0;
    atomic_store(&place->owner, 0);
    return 1;
  }
  return 0;
}

void csystem_journal_add_naming(const char *temporary, const char *path, int is_new) {
  size_t length = strlen(path);
  struct stat status;
  if (length >= longest_path || lstat(temporary, &status) < 0) return;
  struct naming *naming = &journal->namings[atomic_fetch_add(&journal->next_naming, 1) % csystem_naming_count];
  atomic_store(&naming->kind, 0);
  naming->owner = getpid();
  naming->device = status.st_dev;
  naming->number = status.st_ino;
  memcpy(naming->path, path, length + 1);
  atomic_store(&naming->kind, is_new ? 2 : 1);
}

int csystem_journal_naming(int number, pid_t owner, char *path) {
  struct naming *naming = &journal->namings[number];
  int kind = atomic_load(&naming->kind);
  if (kind == 0 || (owner != 0 && naming->owner != owner)) return 0;
  memcpy(path, naming->path, longest_path);
  path[longest_path - 1] = 0;
  struct stat status;
  if (lstat(path, &status) < 0 || status.st_dev != naming->device || status.st_ino != naming->number) return 0;
  return kind;
}

void csystem_journal_clear_namings(pid_t owner) {
  for (int i = 0; i < csystem_naming_count; i++) {
    struct naming *naming = &journal->namings[i];
    if (owner == 0 || naming->owner == owner) atomic_store(&naming->kind, 0);
  }
}

void csystem_journal_add_child(pid_t child) {
  for (int i = 0; i < child_count; i++) {
    int32_t free_place = 0;
    if (atomic_compare_exchange_strong(&journal->children[i], &free_place, child)) return;
  }
}

void csystem_journal_remove_child(pid_t child) {
  for (int i = 0; i < child_count; i++) {
    int32_t found = child;
    if (atomic_compare_exchange_strong(&journal->children[i], &found, 0)) return;
  }
}

pid_t csystem_journal_take_child(void) {
  for (int i = 0; i < child_count; i++) {
    int32_t found = atomic_exchange(&journal->children[i], 0);
    if (found != 0) return found;
  }
  return 0;
}

// MARK: Lines

int csystem_lines_begin(void) {
  if (!journal) return ENOSYS;
  if (journal->fields[csystem_lines_descriptor] >= 0) return 0;
  int file = memfd_create("lines", MFD_CLOEXEC);
  if (file < 0) return errno;
  journal->fields[csystem_lines_descriptor] = file;
  return 0;
}

int csystem_lines_add(const void *bytes, int64_t count) {
  int64_t end = journal->fields[csystem_lines_end];
  for (int64_t done = 0; done < count;) {
    ssize_t written = pwrite(journal->fields[csystem_lines_descriptor], (const char *)bytes + done, count - done, end + done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : EIO;
    done += written;
  }
  // Only now, so that a crash leaves whole lines.
  journal->fields[csystem_lines_end] = end + count;
  return 0;
}

int64_t csystem_lines_waiting(void) {
  return journal->fields[csystem_lines_end] - journal->fields[csystem_lines_taken];
}

int64_t csystem_lines_read(void *buffer, int64_t capacity) {
  int64_t waiting = csystem_lines_waiting();
  if (waiting < capacity) capacity = waiting;
  if (capacity <= 0) return 0;
  ssize_t count = pread(
      journal->fields[csystem_lines_descriptor], buffer, capacity, journal->fields[csystem_lines_taken]);
  return count < 0 ? 0 : count;
}

void csystem_lines_taken_off(int64_t count) {
  int64_t taken = journal->fields[csystem_lines_taken] += count;
  // What was shown costs no memory any more.
  fallocate(journal->fields[csystem_lines_descriptor], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, taken);
}

// MARK: Taking up after a crash

static pthread_t taking_up;
static sigset_t mask;

void csystem_take_up_arm(void) {
  pthread_sigmask(SIG_SETMASK, NULL, &mask);
  atomic_store(&arming, armed);
}

void csystem_take_up_disarm(void) {
  int expected = armed;
  atomic_compare_exchange_strong(&arming, &expected, disarmed);
}

// From here on only calls that are safe in a signal handler.

int csystem_take_up_applies(const siginfo_t *information) {
  int state = atomic_load(&arming);
  // A thread that faults while another one is at it ends with the program that is being replaced.
  while (state == under_way && !pthread_equal(taking_up, pthread_self())) pause();
  if (state != armed || journal->owner != getpid()) return 0;
  // A fault is of the kernel's making or the process's own: a signal from elsewhere is meant to end the program.
  if (information && information->si_code <= 0 && information->si_pid != getpid()) return 0;
  int64_t ended = 0, in_flight = 0;
  for (int64_t i = 0; i < journal->items; i++) {
    int item = atomic_load_explicit(&journal->states[i], memory_order_relaxed);
    if (item >= first_ended) ended++;
    else if (item > 0) in_flight++;
  }
  // Before the first picture, what crashes is not a picture, and nothing is owed to anyone yet. After the last, a thread
  // that was given up or a stage that finishes may crash, and the report is owed.
  if (in_flight == 0 && ended == 0) return 0;
  if (journal->fields[csystem_crashes] >= most_crashes) return 0;
  if (ended <= journal->fields[csystem_ended_at_crash]) return 0;
  int expected = armed;
  if (!atomic_compare_exchange_strong(&arming, &expected, under_way)) {
    while (expected == under_way) pause();
    return 0;
  }
  taking_up = pthread_self();
  journal->fields[csystem_ended_at_crash] = ended;
  return 1;
}

void csystem_take_up(int number, int capture, long taken) {
  journal->fields[csystem_capture_descriptor] = capture;
  journal->fields[csystem_capture_taken] = taken;
  journal->fields[csystem_crash_signal] = number;
  journal->fields[csystem_crashes]++;
  for (int i = csystem_plan_descriptor; i <= csystem_capture_descriptor; i++) {
    int kept = journal->fields[i];
    if (kept >= 0) fcntl(kept, F_SETFD, 0);
  }
  fcntl(descriptor, F_SETFD, 0);
  char word[32] = "run:";
  int length = 4, digits = 0, rest = descriptor;
  char reversed[16];
  do {
    reversed[digits++] = '0' + rest % 10;
    rest /= 10;
  } while (rest > 0);
  while (digits > 0) word[length++] = reversed[--digits];
  word[length] = 0;
  // What was blocked for a watcher of signals stays so: one that comes now is told to the next watcher.
  pthread_sigmask(SIG_SETMASK, &mask, NULL);
  csystem_program_become(word);
  atomic_store(&arming, disarmed);
}
