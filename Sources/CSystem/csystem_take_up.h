#pragma once

#include <signal.h>

/// Whether the process takes up again after this fault, or (NULL) after a library called exit. Safe in a signal handler; answers yes only once.
int csystem_take_up_applies(const siginfo_t *information);

/// Does it; returns only where it fails. Descriptor 2 must lead where it led when the program was started.
void csystem_take_up(int number, int capture, long taken);
