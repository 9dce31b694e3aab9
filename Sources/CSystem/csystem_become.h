#pragma once

#include <signal.h>

/// Becomes the program anew, in the same process. Safe in a signal handler. Returns only where that is not possible.
///
/// `word` is what csystem_program_word answers afterwards.
void csystem_program_become(const char *word);
