#pragma once

/// Puts an unnamed file in memory in the place of file descriptor 2, so that what libraries write there can be turned
/// into log lines; our own output goes to `*original`, where descriptor 2 led before.
///
/// A file and not a pipe: nothing that is written waits for a reader, and when the process dies of a fault (a Swift trap,
/// an abort, a segmentation fault) a signal handler copies what was not yet taken, and a little before it, to
/// `*original`, so that the words of a crash reach people. Descriptor 2 goes back to its place and the fault to whoever handled it before.
///
/// Returns 0, or an error number; then nothing has changed. Once a process.
int csystem_capture_begin(int *original);

/// Copies up to `capacity` captured bytes to `buffer` and forgets them; 0 when there are none.
long csystem_capture_take(char *buffer, long capacity);

/// Puts descriptor 2 back where it was. What was captured can still be taken.
void csystem_capture_end(void);

/// Lets csystem_capture_begin, when it is called next, go on with the file of a program that this one has replaced, and
/// with what was not taken from it.
void csystem_capture_continue(int file, long offset);

/// Says that somebody else's code is run from here on: should the process die of a fault, or should that code call exit,
/// `text` is written to stderr, followed by "and crashed" or "and ended the program". In place of exit's code the process
/// ends with 4, so that what was not done is not taken for done.
///
/// `text` must stay where it is until csystem_guard_end. Others wait until then.
void csystem_guard_begin(const char *text);
void csystem_guard_end(void);
