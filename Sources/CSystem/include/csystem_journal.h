#pragma once
#include <stdint.h>
#include <sys/types.h>

// The journal of a run: a file in memory, mapped, that outlives the program in it. It says of every item how far it is,
// in one byte each, and which temporary files and child processes there are, so that a crash loses none of it. All its
// processes write to it; a word or a byte at a time, each of them whole.
//
// A byte is 0 for an item not begun, 1 to 127 for one in that stage of the chain (from 1), 128 and more for one that has
// ended, in a way that the caller numbers.
//
// One journal a process; none of these may be called before it is there.

/// Makes a journal for so many items. Returns 0 or an error number.
int csystem_journal_make(int64_t items);

/// Maps the journal that this process inherited. `owner` is the process that made it: this one itself after a crash, or
/// its parent. Returns 0, or an error number where the descriptor leads to anything else.
int csystem_journal_open(int descriptor, pid_t owner);

int csystem_journal_descriptor(void);
int64_t csystem_journal_items(void);

/// Sets the byte of an item.
void csystem_journal_mark(int64_t item, int value);
int csystem_journal_state(int64_t item);

/// Numbers that a run keeps across crashes.
enum csystem_journal_field {
  /// Descriptors: what the run was planned to do, the records of items that have ended, lines still to be shown, what
  /// libraries wrote.
  csystem_plan_descriptor, csystem_spool_descriptor, csystem_lines_descriptor, csystem_capture_descriptor,
  /// How far these were written, or read.
  csystem_spool_end, csystem_lines_end, csystem_lines_taken, csystem_capture_taken,
  /// When the first item was started, on the clock that CLOCK_BOOTTIME is, in nanoseconds.
  csystem_begin,
  /// The signal that was asked to end the run; 0 for none.
  csystem_stop_signal,
  /// Whether items are worked on in children.
  csystem_uses_children,
  /// How often the program crashed and took up again, the signal of the last time (0 where a library
  /// called exit), and how many items had ended then.
  csystem_crashes, csystem_crash_signal, csystem_ended_at_crash,
  csystem_field_count,
};
int64_t csystem_journal_get(enum csystem_journal_field field);
void csystem_journal_set(enum csystem_journal_field field, int64_t value);

/// Notes a temporary file of this process; nothing happens where too many are noted already or the path is longer than
/// the kernel takes.
void csystem_journal_add_temporary(const char *path);
void csystem_journal_remove_temporary(const char *path);
/// Forgets one temporary file of a process that is no more, or of any process where `owner` is 0, and copies its path,
/// up to 4096 bytes with the closing 0, to `path`. Returns 0 where there is none left.
int csystem_journal_take_temporary(pid_t owner, char *path);

/// Notes that a temporary file is about to get its name, for the last 256 of them; `is_new` where nothing has that name.
void csystem_journal_add_naming(const char *temporary, const char *path, int is_new);
enum { csystem_naming_count = 256 };
/// Whether the file of a note (from 0) of one process, or of any where `owner` is 0, has got its name and has it still: 0, or 1, or 2 where nothing had the name
/// before. Copies the name, up to 4096 bytes with the closing 0, to `path`.
int csystem_journal_naming(int number, pid_t owner, char *path);
/// Forgets the notes of a process, or all.
void csystem_journal_clear_namings(pid_t owner);

/// Notes a child that was started, and forgets one before it is waited for.
void csystem_journal_add_child(pid_t child);
void csystem_journal_remove_child(pid_t child);
/// Forgets one child and returns it; 0 where there is none left.
pid_t csystem_journal_take_child(void);

/// Lines that wait for a slow reader, in a file in memory: a crash does not lose them. Goes on with those of the program
/// that crashed. Returns 0, or an error number, as where there is no journal.
int csystem_lines_begin(void);
/// Adds bytes at the end. Returns 0 or an error number. Used by one thread at a time.
int csystem_lines_add(const void *bytes, int64_t count);
int64_t csystem_lines_waiting(void);
/// Copies the first bytes that wait; they are forgotten by csystem_lines_taken_off. Used by one thread at a time.
int64_t csystem_lines_read(void *buffer, int64_t capacity);
void csystem_lines_taken_off(int64_t count);

/// From now on a crash of this process makes it take up again, once an item is in flight or has ended: with the fault
/// handler of csystem_capture_begin, which must have been called before. The caller's signal mask is what the program gets then.
void csystem_take_up_arm(void);
/// Crashes end the process again.
void csystem_take_up_disarm(void);
